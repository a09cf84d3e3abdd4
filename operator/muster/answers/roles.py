"""Name the ClusterRoles for answers to readers without a right (the files user-roles.yaml of manifests/)."""

VIEW_ROLE = "muster-view"
EDIT_ROLE = "muster-edit"
FLEET_ROLE = "muster-fleet-view"
FLEET_EDIT_ROLE = "muster-fleet-edit"
