// Package lrs reports load to management servers (Envoy's load_stats v3, gRFC A27, A64,
// A85): what package internal/load has counted, on a stream of its own beside that of ADS,
// on the same connection.
package lrs
