module muster.dev/localcluster/pause

go 1.26.0
