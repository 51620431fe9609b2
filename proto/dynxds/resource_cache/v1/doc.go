// Package resourcecachev1 has the messages in a file of the resource cache (resource_cache of the bootstrap), which
// xdsclient/internal/diskcache writes and reads: a Header, and then a Record for each resource, each after its length. They are on no wire.
// The package has no logic.
package resourcecachev1
