// Package feed makes what a store has the content of a control plane, as package folder does with files.
//
// A Feed keeps two versions of each document: the newest of the store, and the last good one, which was
// published. A document whose newest version is faulty, by itself or together with others, counts with its
// last good one until it is changed again; the others go on. If two documents contradict each other, the
// one that was changed later is to blame, so that all replicas blame the same one. A replica that starts
// finds last good versions in its last-good file or in the revisions that etcd still has.
package feed
