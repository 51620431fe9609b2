package grpcbridge

import (
	"reflect"
	_ "unsafe" // for go:linkname

	estats "google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/resolver"
)

// What gRPC asks for the labels of a subchannel's metrics (gRFC A94), a
// func(resolver.Address) map[string]string. gRPC-Go's own xds sets it too. It is nil if neither
// has, or a future gRPC lacks it.
//
//go:linkname addressToTelemetryLabels google.golang.org/grpc/internal.AddressToTelemetryLabels
var addressToTelemetryLabels any

// The order of initialization, which the Go specification fixes by the import paths, has gRPC-Go's
// own xds set its function before this package: a test of module interop links both.
func init() {
	f, ok := subchannelLabelsBefore(addressToTelemetryLabels)
	if !ok {
		logger.Warningf("gRPC asks for the labels of subchannels in a way that dynxds does not know: " +
			"metrics grpc.subchannel.* have no grpc.lb.locality and grpc.lb.backend_service.")
		return
	}
	addressToTelemetryLabels = f
}

// subchannelLabelsBefore returns a function that has the labels of our addresses, and leaves
// others to next, which may be nil. It reports false if next is not such a function.
func subchannelLabelsBefore(next any) (func(resolver.Address) map[string]string, bool) {
	others, ok := next.(func(resolver.Address) map[string]string)
	return func(a resolver.Address) map[string]string {
		if l, ours := a.BalancerAttributes.Value(subchannelKey{}).(subchannel); ours {
			return map[string]string{"grpc.lb.locality": l.locality, "grpc.lb.backend_service": l.service}
		}
		if others == nil {
			return nil
		}
		return others(a)
	}, ok || next == nil
}

type subchannelKey struct{}

// subchannel has the labels of the metrics of one connection.
type subchannel struct{ service, locality string }

// String implements fmt.Stringer, for gRPC's log.
func (s subchannel) String() string { return s.service + " " + s.locality }

// WithSubchannelLabels returns an address so that the metrics of a connection to it
// (grpc.subchannel.*, gRFC A94) have the labels grpc.lb.backend_service and grpc.lb.locality. gRPC
// cannot change those of a connection that there is.
func WithSubchannelLabels(a resolver.Address, service, locality string) resolver.Address {
	a.BalancerAttributes = a.BalancerAttributes.WithValue(subchannelKey{}, subchannel{service, locality})
	return a
}

// SameSubchannelLabels reports whether connections to two addresses have the same labels, or none.
func SameSubchannelLabels(a, b resolver.Address) bool {
	return a.BalancerAttributes.Value(subchannelKey{}) == b.BalancerAttributes.Value(subchannelKey{})
}

// Records reports whether anybody records the metrics of a channel, by the recorder that gRPC
// gives to the channel's policies: it is never nil, and passes records on to those of the
// channel's stats handlers that take them. Of a recorder of another form the answer is true.
func Records(r estats.MetricsRecorder) bool {
	v := reflect.Indirect(reflect.ValueOf(r))
	if v.Kind() != reflect.Struct {
		return v.IsValid()
	}
	i := fieldOfType(v.Type(), reflect.TypeFor[[]estats.MetricsRecorder]())
	return i == nil || v.FieldByIndex(i).Len() > 0
}
