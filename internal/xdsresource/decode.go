package xdsresource

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/internal/protofield"
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
// The name is returned even with an error, if it can be read.
func decode[M proto.Message, T any](
	resource *anypb.Any, o xdsclient.DecodeOptions, typeURL string, pb M,
	nameField string, nameOf func(M) string, build func(*validator, M) *T,
) (string, any, error) {
	if o.Last != nil {
		name := nameOnWire(resource.GetValue())
		if last, ok := unchanged[T](resource, o, typeURL, name); ok {
			return name, last, nil
		}
	}
	v := newValidator(o)
	if !v.unmarshal(nil, resource, typeURL, pb) {
		return nameOnWire(resource.GetValue()), nil, v.err()
	}
	name := nameOf(pb)
	if name == "" {
		v.fault(faults.Field(nameField), "must not be empty")
	}
	value := build(v, pb)
	if err := v.err(); err != nil {
		return name, nil, err
	}
	return name, value, nil
}

// unchanged returns the last version of a resource if the new one has only other places (package
// provenance), which no value has.
func unchanged[T any](resource *anypb.Any, o xdsclient.DecodeOptions, typeURL, name string) (*T, bool) {
	last, raw := o.Last(name)
	value, ok := last.(*T)
	return value, ok && resource.GetTypeUrl() == typeURL && provenance.Same(typeURL, raw, resource.GetValue())
}

// nameOnWire returns field 1 of a message, which is the name in all four resource types,
// even if the message as a whole is malformed. It returns "" if there is no name.
func nameOnWire(b []byte) string {
	name := ""
	for len(b) > 0 {
		f, rest, err := protofield.Next(b)
		if err != nil {
			break
		}
		if f.Number == 1 && f.Kind == protowire.BytesType && utf8.Valid(f.Value) {
			name = string(f.Value)
		}
		b = rest
	}
	return name
}
