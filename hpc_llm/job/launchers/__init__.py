"""How ranks are started; each module defines one `LAUNCHER` (see `hpc_llm.site.launchers`)."""
