package xdsresource

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/internal/provenance"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// validator is the state of decoding one resource, of any type. The decoders of the
// types embed it: listenerDecoder, routeDecoder, clusterDecoder and endpointDecoder.
type validator struct {
	report
	// trusted says that the server may set the authority of RPCs (gRFC A81).
	trusted bool
	// loads counts load for the server that sent the resource.
	loads *load.Store
	// bootstrap has the certificate providers. nil: their names are not checked.
	bootstrap *bootstrap.Config
	// done is DecodeOptions.Done.
	done <-chan struct{}
	// tied is set when a part of the value depends on more than its bytes: regular expressions count together, equal overrides
	// of filters are one, and what is ignored is counted.
	tied bool
	// strings has the strings that intern keeps.
	strings map[string]string
}

func newValidator(o xdsclient.DecodeOptions) *validator {
	return &validator{
		trusted:   o.Server != nil && o.Server.HasFeature(bootstrap.FeatureTrustedXDSServer),
		loads:     o.Loads,
		bootstrap: o.Bootstrap,
		done:      o.Done,
	}
}

// abandoned reports whether nobody waits for the value any more, which it notes as a fault. It is called for
// each of the parts that a resource may have a lot of.
func (v *validator) abandoned() bool {
	if !isClosed(v.done) {
		return false
	}
	v.fault(nil, "the client was closed while the resource was decoded")
	return true
}

func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// decode unmarshals resource into pb and, if that works, builds its value.
func decode[M proto.Message, T any](
	resource *anypb.Any, o xdsclient.DecodeOptions, typeURL string, pb M,
	nameField string, nameOf func(M) string, build func(*validator, M) *T,
) (any, error) {
	if last, ok := unchanged[T](resource, o, typeURL); ok {
		return last, nil
	}
	v := newValidator(o)
	if !v.unmarshal(nil, resource, typeURL, pb) {
		return nil, v.err()
	}
	if nameOf(pb) == "" {
		v.fault(faults.Field(nameField), "must not be empty")
	}
	value := build(v, pb)
	if err := v.err(); err != nil {
		return nil, err
	}
	return value, nil
}

// unchanged returns the last version of a resource, or nil, and whether the new one has at most other places (package
// provenance), which no value has.
func unchanged[T any](resource *anypb.Any, o xdsclient.DecodeOptions, typeURL string) (*T, bool) {
	last, ok := o.Last.(*T)
	return last, ok && resource.GetTypeUrl() == typeURL && provenance.Same(typeURL, o.LastBytes, resource.GetValue())
}
