"""Name the ClusterRoles for answers to readers without a right (manifests/base/user-roles.yaml)."""

VIEW_ROLE = "muster-view"
FLEET_ROLE = "muster-fleet-view"
FLEET_EDIT_ROLE = "muster-fleet-edit"
