// Package load keeps RPCs of every kind running on a channel while a test
// changes the channel's configuration, and accounts for each one that fails.
//
// It is for tests of this repository. It measures no speed: the RPCs are paced,
// so that the load is there all the time without taking the machine from what
// is tested. The RPCs go to grpc.testing.TestService of testutils.Backend,
// whose responses name it in a header.
package load
