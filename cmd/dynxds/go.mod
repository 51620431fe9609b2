module github.com/dynxds/dynxds/cmd/dynxds

go 1.26.0

require github.com/dynxds/dynxds/mesh v0.0.0-00010101000000-000000000000
