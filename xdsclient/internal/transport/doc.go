// Package transport is what all streams to a management server have in common: the
// connection that they share, messages as bytes, and the rate at which they are read. It
// knows no protocol.
package transport
