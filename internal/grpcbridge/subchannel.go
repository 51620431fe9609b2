package grpcbridge

import (
	"reflect"
	"slices"
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
		if l := SubchannelLabelsOf(a); l != (SubchannelLabels{}) {
			return map[string]string{"grpc.lb.locality": l.Locality, "grpc.lb.backend_service": l.BackendService}
		}
		if others == nil {
			return nil
		}
		return others(a)
	}, ok || next == nil
}

// SubchannelLabels are labels of the metrics of one connection (grpc.subchannel.*, gRFC A94). gRPC
// cannot change those of a connection that there is.
type SubchannelLabels struct {
	BackendService, Locality string
}

type subchannelKey struct{}

// On returns the addresses that a connection with the labels is made to. gRPC takes the labels of
// the first one.
func (l SubchannelLabels) On(addresses []resolver.Address) []resolver.Address {
	if l == (SubchannelLabels{}) || len(addresses) == 0 {
		return addresses
	}
	addresses = slices.Clone(addresses)
	addresses[0].Attributes = addresses[0].Attributes.WithValue(subchannelKey{}, l)
	return addresses
}

// String implements fmt.Stringer, for gRPC's log.
func (l SubchannelLabels) String() string { return l.BackendService + " " + l.Locality }

// SubchannelLabelsOf returns the labels on an address.
func SubchannelLabelsOf(a resolver.Address) SubchannelLabels {
	l, _ := a.Attributes.Value(subchannelKey{}).(SubchannelLabels)
	return l
}

// Records reports whether the metrics of a channel are recorded, by the recorder that gRPC
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
