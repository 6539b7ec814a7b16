"""Tool calls: tasks whose tools are those of an MCP server, or functions and commands that a file describes."""
