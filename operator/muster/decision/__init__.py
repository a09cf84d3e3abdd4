"""A decision about a job as it is performed and recorded: its plan with goodput, and its inputs. Pure."""
