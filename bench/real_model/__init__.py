"""The recipe measured on a real chat model, SmolLM2-135M-Instruct (`python -m bench.real_model`)."""
