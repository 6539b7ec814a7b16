"""The real SGLang on a card whose machine reaches no package index. README.md describes the rig."""
