// Package etcdtest tests "dynxds serve --store", "dynxds apply" and the packages behind them with
// clusters of etcd in the process of the test. It is a module of its own: etcd's server needs more than all
// the rest.
package etcdtest
