// Package store keeps the documents of a mesh in etcd, from where any number of replicas of "dynxds serve" take
// them. "dynxds apply" writes them as a whole (Store.Write), and each replica follows them (Source). There is no
// leader, and no history: a set of documents comes from a folder, whose history Git has.
//
// The package does not check documents. "dynxds apply" does before it writes; what other programs write, replicas
// check when they read it.
//
// # Layout
//
// All keys are below the prefix of the store's URL, "/dynxds" unless it says otherwise:
//
//	PREFIX/docs/NAME      a document file with the YAML or JSON of a folder's, under a name that would be
//	                      read there (folder.IsName): backend.yaml
//	PREFIX/replicas/ID    a replica that runs, under a lease (Announce)
//
// Other keys are not read. Replicas name those below PREFIX/docs in their log. One key for each file, rather than
// one for all, keeps a change as small as its files: etcd bounds the size of a request, and people look at the
// files, and change them, with etcdctl.
//
// # Consistency
//
// A reading has all documents of one revision of etcd. It needs a quorum of etcd's members, and fails after
// Options.Timeout without one. A reading after another one asks only for what has changed since, so that nothing
// depends on which changes a watch has reported, or which revisions etcd has compacted: the watch of a Source only
// says when to read.
package store
