// Package transport is what all streams to a management server have in common: the
// connection that they share, messages as bytes, the rate at which they are read, and the
// backoff between attempts. It knows no protocol.
package transport
