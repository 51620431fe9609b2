package relay

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/internal/dialect"
)

// Fold decides which clients share a node upstream: clients whose nodes are equal in the fields that it
// keeps. The zero value keeps all but the id.
//
// Clients that share a node share a cache, so a control plane that distinguishes them by other fields
// must do so by dynamic parameters (xRFC TP2) or by resources that must not be cached. What a client
// can understand, its user agent and client features, is kept, as a control plane must not send one
// what another does not understand; but for "everything", which announces what all gRPC clients understand.
type Fold struct {
	mode   foldMode
	fields []string
}

type foldMode int

const (
	foldAllButID foldMode = iota
	foldFields
	foldNone
	foldEverything
)

// metadataField starts the fields that are one entry of Node.metadata.
const metadataField = "node.metadata."

// nodeFields copy one field of a node to another, by name.
var nodeFields = map[string]func(to, from *corepb.Node){
	"node.id":       func(to, from *corepb.Node) { to.Id = from.GetId() },
	"node.cluster":  func(to, from *corepb.Node) { to.Cluster = from.GetCluster() },
	"node.locality": func(to, from *corepb.Node) { to.Locality = from.GetLocality() },
	"node.metadata": func(to, from *corepb.Node) { to.Metadata = from.GetMetadata() },
}

// ParseFold reads a Fold as the command line has it:
//
//   - "all-but-id", the default: all of the node but its id;
//   - "none": each client is a node of its own, with a stream of its own;
//   - "everything": all clients are the node of the relay's bootstrap and have one stream, whatever their
//     user agents and features: for agents that serve one stream in a pod, as Istio's;
//   - a list such as "node.cluster,node.metadata.APP": these fields of the client's node, and the
//     rest from the relay's bootstrap. The fields are node.id, node.cluster, node.locality,
//     node.metadata and node.metadata.KEY, where KEY is one key of the metadata, dots included.
func ParseFold(text string) (Fold, error) {
	switch text {
	case "all-but-id":
		return Fold{}, nil
	case "none":
		return Fold{mode: foldNone}, nil
	case "everything":
		return Fold{mode: foldEverything}, nil
	}
	f := Fold{mode: foldFields, fields: strings.Split(text, ",")}
	var faults []error
	for i, field := range f.fields {
		if err := checkField(field); err != nil {
			faults = append(faults, err)
		}
		if slices.Contains(f.fields[:i], field) {
			faults = append(faults, fmt.Errorf("duplicate %q", field))
		}
	}
	if slices.Contains(f.fields, "node.metadata") && slices.ContainsFunc(f.fields, isMetadataKey) {
		faults = append(faults, errors.New(`"node.metadata" has all keys; remove it, or the keys`))
	}
	if err := errors.Join(faults...); err != nil {
		return Fold{}, fmt.Errorf("fold by %q: %w", text, err)
	}
	return f, nil
}

func isMetadataKey(field string) bool { return strings.HasPrefix(field, metadataField) }

func checkField(field string) error {
	switch _, known := nodeFields[field]; {
	case field == "":
		return errors.New("a field is empty")
	case field == "all-but-id", field == "none", field == "everything":
		return fmt.Errorf("%q cannot be combined with other fields", field)
	case field == metadataField:
		return errors.New(`"node.metadata." needs a key, as in node.metadata.APP`)
	case !known && !isMetadataKey(field):
		return fmt.Errorf("%q is not a field of a node to fold by; known are node.id, node.cluster, node.locality, node.metadata, node.metadata.KEY", field)
	}
	return nil
}

// String returns the fold as ParseFold reads it.
func (f Fold) String() string {
	switch f.mode {
	case foldNone:
		return "none"
	case foldEverything:
		return "everything"
	case foldFields:
		return strings.Join(f.fields, ",")
	default:
		return "all-but-id"
	}
}

// check returns an error if the relay's own node cannot stand for the clients.
func (f Fold) check(own *corepb.Node) error {
	if own.GetId() == "" && f.mode != foldNone && !slices.Contains(f.fields, "node.id") {
		return fmt.Errorf("fold by %v: all clients of a group go by the id of the relay, and node.id of its bootstrap is empty: set it, or fold by none", f)
	}
	return nil
}

// private reports whether no two clients are one node.
func (f Fold) private() bool { return f.mode == foldNone }

// node returns the node that a client is upstream. own is that of the relay's bootstrap.
func (f Fold) node(client, own *corepb.Node) *corepb.Node {
	var n *corepb.Node
	switch f.mode {
	case foldNone:
		return ownNode(client)
	case foldAllButID:
		n = clone(client)
		n.Id = own.GetId()
	case foldEverything: // whoever asks
		n = clone(own)
		n.UserAgentName, n.ClientFeatures = dialect.UserAgentRelay, slices.Clone(commonFeatures)
	default:
		n = clone(own)
		for _, field := range f.fields {
			if isMetadataKey(field) {
				copyKey(n, client, strings.TrimPrefix(field, metadataField))
			} else {
				nodeFields[field](n, client)
			}
		}
		n.UserAgentName, n.UserAgentVersionType = client.GetUserAgentName(), client.GetUserAgentVersionType()
		n.ClientFeatures = client.GetClientFeatures()
	}
	n.ClientFeatures = features(n.GetClientFeatures())
	return n
}

// ownNode is a client's node for resources that are not shared.
func ownNode(client *corepb.Node) *corepb.Node {
	n := clone(client)
	n.ClientFeatures = features(n.GetClientFeatures())
	return n
}

func clone(n *corepb.Node) *corepb.Node {
	if n == nil {
		return new(corepb.Node)
	}
	return proto.CloneOf(n)
}

// wrappedInSotW is the client feature of resources that are wrapped in SotW. The relay understands
// them whatever its clients do.
const wrappedInSotW = "xds.config.resource-in-sotw"

// features returns client features in order, with the features of the relay's own end of the stream.
func features(of []string) []string {
	all := append([]string{wrappedInSotW, dialect.RelayFeature}, of...)
	slices.Sort(all)
	return slices.Compact(all)
}

// commonFeatures are the features of every gRPC client.
var commonFeatures = []string{"envoy.lb.does_not_support_overprovisioning"}

// copyKey copies one key of the metadata, or removes it.
func copyKey(to, from *corepb.Node, key string) {
	value, ok := from.GetMetadata().GetFields()[key]
	if !ok {
		delete(to.GetMetadata().GetFields(), key)
		return
	}
	if to.Metadata == nil {
		to.Metadata = new(structpb.Struct)
	}
	if to.Metadata.Fields == nil {
		to.Metadata.Fields = make(map[string]*structpb.Value)
	}
	to.Metadata.Fields[key] = value
}
