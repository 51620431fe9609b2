// Package xdsresource is the data model of the client: it turns the bytes of
// a Listener, RouteConfiguration, Cluster or ClusterLoadAssignment into a
// validated, compiled, immutable Go value.
//
// The bytes come from xdsclient, which calls ResourceType.Decode once per
// changed resource and hands the value to the watchers. The values go to the
// resolver, which joins them into a snapshot, and from there to
// configselector (routes and filters) and balancer (clusters and endpoints).
// All work that takes time is done here, once: names are compared, regular
// expressions compiled, routes indexed. An RPC only calls
// VirtualHost.Route, which takes no lock and costs the same for one route
// and for ten thousand.
//
// It does not open watches, know streams or run RPCs: what a route does to an
// RPC (retries, rewrites, header edits, mirrors) is described by values with small
// methods here, and configselector/internal/router carries it out. It reads the fields that this
// client acts on and, as gRFC A27 asks, ignores the others; [IgnoredFields] lists them.
//
// Each resource type has a decoder, with a validator that collects errors. A resource with errors is rejected with all of them, see [Faults]. Parts that
// gRPC has to ignore are left out and reported, see [xdsclient.Ignored].
package xdsresource

import (
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/dialect"
	"github.com/dynxds/dynxds/internal/dynwire"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsname"
	dynamicparametersv3 "github.com/dynxds/dynxds/proto/dynxds/dynamic_parameters/v3"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// The resource types, for xdsclient.Client.Watch. They are never written to. They decode to *Listener, *RouteConfiguration, *Cluster and
// *Endpoints.
var (
	ListenerType           = typeOf(typeurl.Listener, "Listener", true, readListener)
	RouteConfigurationType = typeOf(typeurl.RouteConfiguration, "RouteConfiguration", false, readRouteConfiguration)
	ClusterType            = typeOf(typeurl.Cluster, "Cluster", true, readCluster)
	EndpointsType          = typeOf(typeurl.Endpoints, "ClusterLoadAssignment", false, readEndpoints)
)

// readers decode the resources of these types, by type URL, but for what is ignored of them. What they return after an error is of no use.
var readers = make(map[string]func(*validator, []byte) resource)

// resource is a decoded resource, which has what is ignored of it.
type resource interface{ ignored() *[]xdsclient.Ignored }

func (l *Listener) ignored() *[]xdsclient.Ignored            { return &l.Ignored }
func (rc *RouteConfiguration) ignored() *[]xdsclient.Ignored { return &rc.Ignored }
func (c *Cluster) ignored() *[]xdsclient.Ignored             { return &c.Ignored }
func (e *Endpoints) ignored() *[]xdsclient.Ignored           { return &e.Ignored }

func typeOf[T resource](typeURL, name string, full bool, read func(*validator, []byte) T) *xdsclient.ResourceType {
	readers[typeURL] = func(v *validator, raw []byte) resource { return read(v, raw) }
	return &xdsclient.ResourceType{
		TypeURL: typeURL, Name: name, FullStateInSotW: full,
		Decode: func(resource *anypb.Any, o xdsclient.DecodeOptions) (any, error) {
			trusted := o.Server != nil && o.Server.HasFeature(bootstrap.FeatureTrustedXDSServer)
			return (&validator{DecodeOptions: o, trusted: trusted}).decode(typeURL, resource)
		},
		Ignored: func(value any) []xdsclient.Ignored { return *value.(T).ignored() },
	}
}

// validator is the state of decoding one resource, of any type. The decoders of the
// types embed it: routeDecoder, clusterDecoder and endpointDecoder.
type validator struct {
	faults Faults
	// ignored is what is left out of the value.
	ignored ignoredList
	// Of the options, Bootstrap may be nil: the names of certificate providers are not checked then.
	xdsclient.DecodeOptions
	// client is whose decoder this is: that of dynxds, but for explanations.
	client dialect.Implementation
	// trusted says that the server may set the authority of RPCs (gRFC A81).
	trusted bool
	// noted says that what is read was part of a message that has been read, whose ignored fields have been noted.
	noted bool
	// tied is set when a part of the value depends on more than its bytes: regular expressions count together, equal overrides
	// of filters are one, and what is ignored is counted.
	tied bool
	// regexes are the regular expressions so far, each compiled once, lastRegexes those of the version before, and regexCost is what
	// all come to, with those of HTTP filters; see matching.CompileRegex.
	regexes, lastRegexes map[regexKey]matching.Regex
	regexCost            int
	// strings has the strings that intern keeps.
	strings map[string]string
}

func (v *validator) decode(typeURL string, packed *anypb.Any) (any, error) {
	var value resource
	if v.hasType(nil, packed, typeURL) {
		value = readers[typeURL](v, packed.GetValue())
	}
	if v.failed() {
		return nil, &v.faults
	}
	*value.ignored() = v.ignored.list()
	return value, nil
}

// DecodeClusterAs decodes a Cluster as the client of another implementation does: without the load balancing policies and the slow start
// that it does not have.
func DecodeClusterAs(client dialect.Implementation, resource *anypb.Any) (any, error) {
	return (&validator{client: client}).decode(typeurl.Cluster, resource)
}

// readNamed reads a resource, which must have a name. It reports false if it cannot be read.
func (v *validator) readNamed(raw []byte, pb proto.Message, field string, name func() string) bool {
	if !v.read(nil, raw, pb) {
		return false
	}
	v.notEmpty(faults.Field(field), name())
	return true
}

// Faults is the error for a resource that does not validate: everything that is wrong
// with it, in the order in which its fields are read. The paths are proto field paths
// from the resource, as in "virtual_hosts[2].routes[0].match".
type Faults struct{ faults.Faults }

// Error returns all errors on one line, since it becomes part of a NACK.
func (f *Faults) Error() string { return f.Join("; ") }

// fault notes that the field at p is invalid.
func (v *validator) fault(p *faults.Path, format string, args ...any) {
	v.faults.Addf(p, format, args...)
}

// lack notes that this client lacks what the field at p asks for, and what to do about that: the control plane need not change.
func (v *validator) lack(p *faults.Path, suggestion, format string, args ...any) {
	v.faults.Add(faults.Fault{Path: p.String(), Problem: faults.Shorten(fmt.Sprintf(format, args...), faults.MaxProblem), Suggestion: suggestion})
}

// ignore notes that the field at p is left out of the value.
func (v *validator) ignore(p *faults.Path, format string, args ...any) {
	v.leaveOut(p, xdsclient.SeverityInfo, format, args...)
}

// warn notes that the field at p is left out of the value, and that RPCs may go
// elsewhere because of that.
func (v *validator) warn(p *faults.Path, format string, args ...any) {
	v.leaveOut(p, xdsclient.SeverityWarning, format, args...)
}

func (v *validator) leaveOut(p *faults.Path, severity xdsclient.Severity, format string, args ...any) {
	reason := faults.Shorten(fmt.Sprintf(format, args...), faults.MaxProblem)
	v.ignored.add(p.String(), severity, reason, reason)
}

// atMost notes an error if a list has more entries than a limit, and reports whether it has not. Each RPC
// goes through such a list.
func (v *validator) atMost(p *faults.Path, n, limit int) bool {
	if n > limit {
		v.fault(p, "has %d entries, more than the %d that this client takes, as each RPC goes through them", n, limit)
	}
	return n <= limit
}

// failed reports whether the resource has an error.
func (v *validator) failed() bool { return v.faults.Total() > 0 }

// DynamicParameterConstraintsTypeURL is the type URL of DPDS resources (xRFC TP2,
// "Server-Specified Constraints").
const DynamicParameterConstraintsTypeURL = dynparam.MapTypeURL

// DynamicParameterConstraintsType decodes to *DynamicParameterConstraintsMap. A server gives the name in the
// envoy.service.discovery.v3.Resource around the message, which it needs for do_not_cache anyway (TP2,
// "Non-Cacheability of DPDS").
var DynamicParameterConstraintsType = &xdsclient.ResourceType{
	TypeURL:  DynamicParameterConstraintsTypeURL,
	Name:     "DynamicParameterConstraintsMap",
	Nameless: true,
	Decode:   decodeDynamicParameterConstraints,
	Ignored:  func(value any) []xdsclient.Ignored { return value.(*DynamicParameterConstraintsMap).Ignored },
}

// DynamicParameterConstraintsMap is a DPDS resource: the constraints that the
// control plane wants this client to subscribe with.
type DynamicParameterConstraintsMap struct {
	// Constraints are by the type of resource to subscribe to.
	Constraints dynparam.ByType
	// Ignored lists the constraints that choose nothing, since their type is not a resource type, and, with
	// SeverityInfo, those for a type that the program may have defined; see xdsname.CheckType.
	Ignored []xdsclient.Ignored
}

func ignoredConstraints(m *dynamicparametersv3.DynamicParameterConstraintsMap) []xdsclient.Ignored {
	var ignored ignoredList
	for _, name := range slices.Sorted(maps.Keys(m.GetResourceTypeConstraints())) {
		known, err := xdsname.CheckType(name)
		at := faults.Field("resource_type_constraints").Key(name).String()
		switch {
		case err != nil:
			ignored.add(at, xdsclient.SeverityWarning, err.Error(), err.Error())
		case !known:
			ignored.add(at, xdsclient.SeverityInfo, name, xdsname.OfProgram(name))
		}
	}
	return ignored.list()
}

func decodeDynamicParameterConstraints(resource *anypb.Any, _ xdsclient.DecodeOptions) (any, error) {
	m, err := dynwire.UnmarshalMap(resource)
	if err != nil {
		return nil, err
	}
	constraints, err := dynparam.ByTypeFromProto(m)
	if err != nil {
		return nil, err
	}
	return &DynamicParameterConstraintsMap{constraints, ignoredConstraints(m)}, nil
}
