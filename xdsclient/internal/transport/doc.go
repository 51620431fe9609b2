// Package transport is what all streams to a management server have in common: the
// connection that they share, messages as bytes, how fast they are read, and how long
// to wait between attempts. It knows no protocol.
package transport
