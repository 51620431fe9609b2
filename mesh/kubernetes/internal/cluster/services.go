package cluster

import (
	"cmp"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

// This file makes services of the mesh out of a Service and its EndpointSlices. It is functions over values.

// named is a Service, by its namespace and name.
type named struct{ namespace, name string }

func (n named) String() string { return n.namespace + "/" + n.name }

// host is the name under which clients dial the Service, without a port.
func (n named) host() string { return n.name + "." + n.namespace }

// serviceName is the name of one port of a Service in the mesh. Kubernetes' names have no dots, so it is the only one of its form.
func serviceName(of named, port int32) string {
	return of.host() + ":" + strconv.Itoa(int(port))
}

// Ports returns the TCP ports of a Service, the default one first: the first that is for gRPC by its name or protocol, or else the
// first. A port that is added behind others does not change the default, and so clients that name no port.
func Ports(s *corev1.Service) []corev1.ServicePort {
	var list []corev1.ServicePort
	for _, p := range s.Spec.Ports {
		if p.Protocol == corev1.ProtocolTCP || p.Protocol == "" {
			list = append(list, p)
		}
	}
	if i := slices.IndexFunc(list, IsGRPC); i > 0 {
		first := list[i]
		list = slices.Insert(slices.Delete(list, i, i+1), 0, first)
	}
	return list
}

// IsGRPC reports whether a port is for gRPC by its name or protocol.
func IsGRPC(p corev1.ServicePort) bool {
	if p.AppProtocol != nil {
		return *p.AppProtocol == "grpc" || *p.AppProtocol == "kubernetes.io/h2c"
	}
	return p.Name == "grpc" || strings.HasPrefix(p.Name, "grpc-")
}

// aliases are the names of one of the ports of a Service, the default one first, beside that with its number. A name of a port may be the number of another
// one, for which it stands then.
func aliases(of named, ports []corev1.ServicePort, at int, domain string) (list []meshroute.Alias) {
	p := ports[at]
	suffixes := []string{":" + strconv.Itoa(int(p.Port))}
	isNumber := func(o corev1.ServicePort) bool { return strconv.Itoa(int(o.Port)) == p.Name }
	if p.Name != "" && !slices.ContainsFunc(ports, isNumber) {
		suffixes = append(suffixes, ":"+p.Name)
	}
	if at == 0 {
		suffixes = append(suffixes, "")
	}
	for i, suffix := range suffixes {
		if i > 0 {
			list = append(list, meshroute.Alias{Name: of.host() + suffix})
		}
		list = append(list,
			meshroute.Alias{Name: of.host() + ".svc." + domain + suffix},
			meshroute.Alias{Name: of.name + suffix, Namespace: of.namespace})
	}
	return list
}

// instance is an endpoint in the making.
type instance struct {
	meshroute.Endpoint
	// target identifies the pod, empty if there is none.
	target string
	// terminating is set for an endpoint that still serves, but is about to end.
	terminating bool
}

// instances returns the endpoints for a port of a Service, ordered by address, and what is wrong with those that are left out: the
// API accepts ports and addresses that nobody can connect to.
func instances(s *corev1.Service, slicesOf []*discoveryv1.EndpointSlice, p corev1.ServicePort) (list []instance, problems []string) {
	primary := discoveryv1.AddressTypeIPv4
	if len(s.Spec.IPFamilies) > 0 && s.Spec.IPFamilies[0] == corev1.IPv6Protocol {
		primary = discoveryv1.AddressTypeIPv6
	}
	var first, second []instance
	for _, slice := range slicesOf {
		number, ok := targetPort(slice, p.Name)
		if !ok {
			continue
		}
		if number < 1 || number > math.MaxUint16 {
			problems = append(problems, fmt.Sprintf("the endpoints of EndpointSlice %s are left out, as its port %q is %d", slice.Name, p.Name, number))
			continue
		}
		refused, firstRefused := 0, ""
		for i := range slice.Endpoints {
			e, ok := instanceOf(&slice.Endpoints[i])
			if !ok {
				continue
			}
			host, ok := canonical(e.Address, slice.AddressType)
			e.Address = net.JoinHostPort(host, strconv.Itoa(int(number)))
			switch {
			case !ok || !utf8.ValidString(e.Locality.Zone):
				if refused++; refused == 1 {
					firstRefused = e.Address
				}
			case slice.AddressType == primary || slice.AddressType == discoveryv1.AddressTypeFQDN:
				first = append(first, e)
			default:
				second = append(second, e)
			}
		}
		if refused > 0 {
			problems = append(problems, fmt.Sprintf("%s of EndpointSlice %s are left out; the first one has the address %s, to which clients cannot connect, or a zone that is not UTF-8",
				faults.Count(refused, "endpoint"), slice.Name, faults.Quote(firstRefused)))
		}
	}
	slices.Sort(problems)
	return joinFamilies(unique(first), unique(second)), problems
}

// canonical returns an address in the form in which each has one, and whether it is one of its kind that clients can use. The API accepts IPv4 addresses with
// zeros before numbers.
func canonical(host string, kind discoveryv1.AddressType) (canonical string, ok bool) {
	if kind == discoveryv1.AddressTypeFQDN {
		return host, len(validation.IsDNS1123Subdomain(strings.TrimSuffix(host, "."))) == 0
	}
	ip, ok := netip.AddrFromSlice(netutils.ParseIPSloppy(host))
	if !ok {
		return host, false
	}
	ip = ip.Unmap()
	return ip.String(), ip.Is4() == (kind == discoveryv1.AddressTypeIPv4) // an IPv6 address that is an IPv4 one would be there twice
}

// targetPort returns the number that a port of a Service has at the endpoints of a slice. Pods that have other numbers for the
// port's name are in other slices.
func targetPort(slice *discoveryv1.EndpointSlice, name string) (number int32, ok bool) {
	for _, p := range slice.Ports {
		if ptr.Deref(p.Name, "") == name && p.Port != nil && ptr.Deref(p.Protocol, corev1.ProtocolTCP) == corev1.ProtocolTCP {
			return *p.Port, true
		}
	}
	return 0, false
}

// instanceOf returns an endpoint of a slice, without a port; ok is false for one that has ceased to serve before it ends.
func instanceOf(e *discoveryv1.Endpoint) (i instance, ok bool) {
	if len(e.Addresses) == 0 {
		return i, false
	}
	// All addresses of an endpoint are interchangeable, and consumers are to take the first.
	i.Address = e.Addresses[0]
	ready := ptr.Deref(e.Conditions.Ready, true)
	serving, terminating := ptr.Deref(e.Conditions.Serving, ready), ptr.Deref(e.Conditions.Terminating, false)
	switch {
	case ready:
	case serving && terminating:
		i.terminating, i.Health = true, corepb.HealthStatus_DRAINING
	case terminating:
		return i, false
	default:
		i.Health = corepb.HealthStatus_UNHEALTHY
	}
	i.Locality.Zone = ptr.Deref(e.Zone, "")
	if e.TargetRef != nil {
		i.target = string(e.TargetRef.UID) + " " + e.TargetRef.Kind + " " + e.TargetRef.Namespace + "/" + e.TargetRef.Name
	}
	if e.Hints != nil {
		for _, zone := range e.Hints.ForZones {
			i.ForZones = append(i.ForZones, zone.Name)
		}
		for _, node := range e.Hints.ForNodes {
			i.ForNodes = append(i.ForNodes, node.Name)
		}
	}
	return i, true
}

// healths orders health from best to worst.
var healths = []corepb.HealthStatus{corepb.HealthStatus_UNKNOWN, corepb.HealthStatus_DRAINING, corepb.HealthStatus_UNHEALTHY}

// compareHealth is negative if the first endpoint is healthier.
func compareHealth(a, b instance) int {
	return slices.Index(healths, a.Health) - slices.Index(healths, b.Health)
}

// unique orders endpoints by address, each once, with the best health: while an endpoint moves from one slice to another, it may be
// in both.
func unique(list []instance) []instance {
	slices.SortStableFunc(list, func(a, b instance) int {
		return cmp.Or(strings.Compare(a.Address, b.Address), compareHealth(a, b))
	})
	return slices.CompactFunc(list, func(a, b instance) bool { return a.Address == b.Address })
}

// joinFamilies adds the addresses of the second IP family to the pods of the first, and pods that have only these. A pod has the best
// health of its addresses, as the slices of the families are written one after the other. Endpoints without a pod cannot be told apart,
// so those of the second family only count if there are no others.
func joinFamilies(first, second []instance) []instance {
	if len(first) == 0 || len(second) == 0 {
		return append(first, second...)
	}
	at := make(map[string]int, len(first))
	for i, e := range first {
		if at[e.Address] = i; e.target != "" {
			at[e.target] = i
		}
	}
	for _, e := range second {
		i, known := at[e.target]
		switch _, twice := at[e.Address]; {
		case twice: // a slice of names has the address, and clients reject all endpoints if one is there twice
		case known:
			joined := first[i]
			if compareHealth(e, joined) < 0 {
				joined = e
			}
			joined.Address, joined.AdditionalAddresses = first[i].Address, append(first[i].AdditionalAddresses, e.Address)
			first[i] = joined
		case e.target != "":
			first = append(first, e)
		}
	}
	return unique(first)
}

// endpoints completes a list of endpoints: hints count only if all endpoints that can be used have some, and endpoints that are
// about to end are used while there are no others, as kube-proxy does.
func endpoints(list []instance) []meshroute.Endpoint {
	usable, zoned, noded := 0, 0, 0
	for _, e := range list {
		if e.Health != corepb.HealthStatus_UNKNOWN {
			continue
		}
		usable++
		zoned += min(len(e.ForZones), 1)
		noded += min(len(e.ForNodes), 1)
	}
	all := make([]meshroute.Endpoint, len(list))
	for i, e := range list {
		all[i] = e.Endpoint
		if zoned < usable {
			all[i].ForZones = nil
		}
		if noded < usable {
			all[i].ForNodes = nil
		}
		if usable == 0 && e.terminating {
			all[i].Health = corepb.HealthStatus_UNKNOWN
		}
	}
	return all
}
