// Package feed makes what a store has the content of a control plane, as package folder does with files.
//
// A Feed follows the newest documents of the store. While these are faulty, all replicas serve the last documents
// that were good as a whole. Which ones these are is not up to each replica: it is in the store (store.Good),
// where "dynxds apply" writes it with the documents, and a replica when it has published documents that were
// written by other means.
//
//	revision 7   a.yaml is good          replica 1 publishes it, and keeps in the store that revision 7 is good
//	revision 9   a.yaml is faulty        replica 1 keeps the texts of revision 7 in the store, and goes on with them
//	             etcd compacts 7, and replica 2 starts: it serves the texts of revision 7 from the store
//
// The texts are in the store only while they are needed. Replicas that write at the same time do so by
// comparison: one wins, and the others follow it.
package feed
