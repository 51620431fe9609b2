package xdsname

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dynxds/dynxds/internal/faults"
)

// ConstraintsMap is the type of the resource that has the constraints for a client (xRFC
// TP2, "Server-Specified Constraints").
const ConstraintsMap = "envoy.config.dynamic_parameters.v3.DynamicParameterConstraintsMap"

// resourceTypes are the resource types of xDS, including those that this client does not
// subscribe to, since a program may.
var resourceTypes = []string{
	"envoy.config.cluster.v3.Cluster",
	"envoy.config.cluster.v3.ClusterCollection",
	"envoy.config.core.v3.TypedExtensionConfig",
	"envoy.config.endpoint.v3.ClusterLoadAssignment",
	"envoy.config.endpoint.v3.LbEndpoint",
	"envoy.config.endpoint.v3.LbEndpointCollection",
	"envoy.config.listener.v3.Listener",
	"envoy.config.listener.v3.ListenerCollection",
	"envoy.config.route.v3.RouteConfiguration",
	"envoy.config.route.v3.ScopedRouteConfiguration",
	"envoy.config.route.v3.VirtualHost",
	"envoy.extensions.transport_sockets.tls.v3.Secret",
	"envoy.service.runtime.v3.Runtime",
}

// ResourceTypes returns the names of the resource types of xDS, without ConstraintsMap.
func ResourceTypes() []string { return slices.Clone(resourceTypes) }

// CheckType checks a type name in constraints by type. known says that it is a resource type
// of xDS. Any other name may be a type that the program defines (xdsclient.ResourceType), and
// is an error only if
//
//   - it is in the package of an xDS type, but is no resource type of that package;
//   - it is in a package of Envoy, or in none, and has the message name of an xDS type that
//     is in another package.
//
// The error says what was found and suggests the name that was probably meant.
func CheckType(name string) (known bool, err error) {
	if name == ConstraintsMap {
		return true, fmt.Errorf("found %s, which is asked for without constraints (xRFC TP2, \"Non-Cacheability of DPDS\")", faults.Quote(name))
	}
	if slices.Contains(resourceTypes, name) {
		return true, nil
	}
	pkg, message := splitType(name)
	var neighbours []string
	for _, t := range resourceTypes {
		p, m := splitType(t)
		if strings.EqualFold(m, message) && (pkg == "" || strings.HasPrefix(pkg, "envoy.")) {
			return false, fmt.Errorf("found %s, which is the type of no resource; did you mean %q?", faults.Quote(name), t)
		}
		if p == pkg {
			neighbours = append(neighbours, faults.Quote(t))
		}
	}
	if len(neighbours) > 0 {
		return false, fmt.Errorf("found %s, which is the type of no resource; did you mean %s?", faults.Quote(name), strings.Join(neighbours, " or "))
	}
	return false, nil
}

// OfProgram says what constraints are good for whose type is none of xDS and no error.
func OfProgram(name string) string {
	return fmt.Sprintf("found %s, which is no resource type of xDS: the constraints only apply if the program watches it with an xdsclient.ResourceType of its own", faults.Quote(name))
}

// splitType splits the name of a type into its package and that of its message. The
// prefix of a type URL does not matter.
func splitType(name string) (pkg, message string) {
	name = name[strings.LastIndexByte(name, '/')+1:]
	i := strings.LastIndexByte(name, '.')
	return name[:max(i, 0)], name[i+1:]
}

// CheckConstraintsMap checks the name of the DPDS resource of an authority. The error says
// what was found.
func CheckConstraintsMap(name string) error {
	n, err := Parse(name)
	switch {
	case err != nil:
		return fmt.Errorf("found %s: %w", faults.Quote(name), err)
	case IsCollection(n.Text):
		return fmt.Errorf("found %s, which is the name of a collection", faults.Quote(name))
	case n.NewStyle && n.Type != ConstraintsMap:
		parts, _ := splitParts(n.Text) // n.Text has all of them
		parts.typeName = ConstraintsMap
		return fmt.Errorf("found the type %s; did you mean %q?", faults.Quote(n.Type), parts.String())
	default:
		return nil
	}
}
