// Package etcdtest tests "dynxds serve --store" and the packages behind it with clusters of etcd in the
// process of the test. It is a module of its own: etcd's server needs more than all the rest.
package etcdtest
