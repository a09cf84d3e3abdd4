"""A decision about a job as it is performed and recorded: its plan with the goodput account, and its inputs. Pure."""
