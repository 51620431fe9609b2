// Package store keeps the documents of a mesh in etcd, from where any number of replicas of "dynxds
// serve" take them. There is no leader: "dynxds apply" writes the documents, and replicas read them.
//
// # Layout
//
// All keys are below the prefix of the store's URL, "/dynxds" unless it says otherwise:
//
//	PREFIX/docs/NAME      a document file with the YAML or JSON of a folder's, under a name that would be
//	                      read there (folder.IsName): backend.yaml
//	PREFIX/history/N      a Record: what was changed, when and by whom, which Commit writes in the
//	                      same transaction
//	PREFIX/good           a Good, which Commit writes in the same transaction, and replicas after changes by
//	                      other means (KeepGood)
//	PREFIX/replicas/ID    a replica that runs, under a lease (Announce)
//
// Other keys are not read. Replicas name those below PREFIX/docs in their log.
//
// # Revisions
//
// A revision is etcd's: it counts the changes of the whole cluster. A Snapshot is what one revision has,
// and each Document has the revision that it was last changed at. etcd compacts old revisions: Watch then
// fails with ErrCompacted, and a new Load gives the documents, of which those with the same ModRevision
// are the same.
//
// # Consistency
//
// Load, History and Before are linearizable: they need a quorum of etcd's members, and fail after
// Options.Timeout without one. Watch follows one member; it ends if that one loses its leader. It is up to the
// caller to try again.
package store
