package grpcbridge

import (
	"reflect"

	"google.golang.org/grpc"
)

// gRPC's own bound on the attempts of an RPC, if the application set none
// (gRFC A6, "Limits on Retries and Hedges").
const defaultMaxAttempts = 5

// MaxAttempts returns how many attempts an RPC on the channel may have,
// whatever its retry policy says: 1 after grpc.WithDisableRetry, the number
// given to grpc.WithMaxCallAttempts, or else 5. gRPC has no API for the options
// of a channel, so they are read from where it keeps them; if a future gRPC keeps
// them elsewhere, the answer is 5.
func MaxAttempts(cc *grpc.ClientConn) int {
	if f := dialOption(cc, "disableRetry"); f.Kind() == reflect.Bool && f.Bool() {
		return 1
	}
	if f := dialOption(cc, "maxCallAttempts"); f.Kind() == reflect.Int && f.Int() > 0 {
		return int(f.Int())
	}
	return defaultMaxAttempts
}

// DisablesHealthChecks reports whether the channel was dialled with grpc.WithDisableHealthCheck
// (gRFC A17), which is read in the same way. If it cannot be, the answer is false.
func DisablesHealthChecks(cc *grpc.ClientConn) bool {
	f := dialOption(cc, "disableHealthCheck")
	return f.Kind() == reflect.Bool && f.Bool()
}

// dialOption returns a field of gRPC's options of a channel, or the zero Value.
func dialOption(cc *grpc.ClientConn, name string) reflect.Value {
	if cc == nil {
		return reflect.Value{}
	}
	opts := reflect.ValueOf(cc).Elem().FieldByName("dopts")
	if opts.Kind() != reflect.Struct {
		return reflect.Value{}
	}
	return opts.FieldByName(name)
}
