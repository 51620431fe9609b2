package xdsresource

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/dialect"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// validator is the state of decoding one resource, of any type. The decoders of the
// types embed it: listenerDecoder, routeDecoder, clusterDecoder and endpointDecoder.
type validator struct {
	report
	// client is whose decoder this is: that of dynxds, but for explanations.
	client dialect.Implementation
	// trusted says that the server may set the authority of RPCs (gRFC A81).
	trusted bool
	// loads counts load for the server that sent the resource.
	loads *load.Store
	// bootstrap has the certificate providers. nil: their names are not checked.
	bootstrap *bootstrap.Config
	// last is DecodeOptions.Last, and lastBytes what it was decoded from.
	last      any
	lastBytes []byte
	// noted says that what is read was part of a message that has been read, whose ignored fields have been noted.
	noted bool
	// tied is set when a part of the value depends on more than its bytes: regular expressions count together, equal overrides
	// of filters are one, and what is ignored is counted.
	tied   bool
	unused unusedWalk
	// strings has the strings that intern keeps.
	strings map[string]string
}

func newValidator(o xdsclient.DecodeOptions) *validator {
	return &validator{
		trusted:   o.Server != nil && o.Server.HasFeature(bootstrap.FeatureTrustedXDSServer),
		loads:     o.Loads,
		bootstrap: o.Bootstrap,
		last:      o.Last,
		lastBytes: o.LastBytes,
	}
}

// decoderOf returns ResourceType.Decode for a type.
func decoderOf(typeURL string) func(*anypb.Any, xdsclient.DecodeOptions) (any, error) {
	return func(resource *anypb.Any, o xdsclient.DecodeOptions) (any, error) {
		return newValidator(o).decode(typeURL, resource)
	}
}

func (v *validator) decode(typeURL string, resource *anypb.Any) (value any, err error) {
	if v.hasType(nil, resource, typeURL) {
		value = v.resource(typeURL, resource.GetValue())
	}
	if err := v.err(); err != nil {
		return nil, err
	}
	return value, nil
}

// DecodeClusterAs decodes a Cluster as the client of another implementation does: without the load balancing policies and the slow start
// that it does not have.
func DecodeClusterAs(client dialect.Implementation, resource *anypb.Any) (any, error) {
	v := newValidator(xdsclient.DecodeOptions{})
	v.client = client
	return v.decode(typeurl.Cluster, resource)
}

// resource decodes a resource. What it returns after an error is of no use.
func (v *validator) resource(typeURL string, raw []byte) any {
	switch typeURL {
	case typeurl.Listener:
		return readListener(v, raw)
	case typeurl.RouteConfiguration:
		return readRouteConfiguration(v, raw)
	case typeurl.Cluster:
		return readCluster(v, raw)
	case typeurl.Endpoints:
		return readEndpoints(v, raw)
	default:
		v.fault(nil, "no resource type with type URL %s", faults.Quote(typeURL))
		return nil
	}
}

// readNamed reads a resource, which must have a name. It reports false if it cannot be read.
func (v *validator) readNamed(raw []byte, pb proto.Message, field string, name func() string) bool {
	if !v.read(nil, raw, pb) {
		return false
	}
	if name() == "" {
		v.fault(faults.Field(field), "must not be empty")
	}
	return true
}
