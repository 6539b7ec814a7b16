"""SGLang imports IPython for notebooks; a server shows nothing in one."""
