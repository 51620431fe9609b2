package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/internal/outcomes"
	"github.com/dynxds/dynxds/mesh/explain"
	"github.com/dynxds/dynxds/mesh/internal/status"
)

// Process examines the channels of a running process by what it says of them: that of a target, or all if target is empty. The
// error is that the process cannot be asked.
func Process(ctx context.Context, p status.Process, target string) (*Report, error) {
	answer, surveys, left, err := status.Survey(ctx, p, target)
	if err != nil {
		return nil, err
	}
	r := &Report{Of: p.Address}
	r.ok("process", p.Address, "it answers")
	if len(answer.Clients) == 0 {
		r.warn("dial xds:///SERVICE there; if it also links gRPC-Go's xds, see docs/reference/csds.md for whose clients a server tells of", "channels", "", "the process has no xDS client in use")
	}
	silent := 0
	for i := range answer.Clients {
		s := answer.Clients[i].State
		if s == nil {
			silent++
			continue
		}
		r.servers(s.Time, s.Servers)
		r.identities(s.Certificates)
		for j := range s.Channels {
			if x := &s.Channels[j]; x.Error != "" {
				r.fail("see docs/tasks/debugging.md", "channel", x.Target, "%s, %s: %s", x.State, x.Mode, x.Error)
			} else if x.State == string(inspect.TransientFailure) {
				r.warn("see the checks of its endpoints", "channel", x.Target, "%s, %s", x.State, x.Mode)
			} else {
				r.ok("channel", x.Target, "%s, %s", x.State, x.Mode)
			}
		}
		if target == "" && s.ChannelsLeftOut > 0 {
			add := r.warn
			if s.Verdict.State == livestate.Failing {
				add = r.fail
			}
			add("dynxds status names those that fail; give doctor the target of one", "channels", "", "%d more were not examined; the process says: %s", s.ChannelsLeftOut, s.Verdict.Text)
		}
	}
	if silent > 0 {
		r.warn("register csds in a process of dynxds to know more", "connections", "", "of %s the process says only what it holds", faults.Count(silent, "xDS client"))
	}
	if left > 0 {
		r.warn("give doctor the target of one", "channels", "", "not examined: %s", faults.Count(left, "more Listener"))
	}
	for _, s := range surveys {
		for _, c := range r.survey(s) {
			r.reported(c)
		}
	}
	for i := range answer.Clients {
		if s := answer.Clients[i].State; s != nil {
			r.outcomes(s, target)
		}
	}
	return r, nil
}

// outcomes checks what became of the RPCs to a target, or to all if target is empty.
func (r *Report) outcomes(s *livestate.State, target string) {
	add := func(to, name string, rpcs *outcomes.Report, health livestate.Health) {
		if rpcs == nil || target != "" && !explain.SameTarget(to, target) {
			return
		}
		result, fix := OK, ""
		if rpcs.Minute.Failed > 0 {
			result, fix = Warning, "dynxds explain shows where an RPC goes; if the error is the server's, look at its log"
			if health == livestate.Failing {
				result = Failed
			}
		}
		r.Add(result, fix, "RPCs", name, "%s", livestate.RPCs(rpcs))
	}
	for i := range s.Channels { // their RPCs that no route has sent to a cluster
		add(s.Channels[i].Target, s.Channels[i].Target, s.Channels[i].RPCs, s.Verdict.State)
	}
	for _, c := range s.Clusters {
		add(c.Target, c.Name, c.RPCs, c.Health)
	}
}

// servers checks what an xDS client said of its management servers at a time.
func (r *Report) servers(at time.Time, list []livestate.Server) {
	const step = "ADS"
	for _, s := range list {
		since := ""
		if !s.Since.IsZero() {
			since = ", for " + livestate.Ago(at.Sub(s.Since))
		}
		switch {
		case s.Error != "":
			r.fail(servers.about(s.Error), step, s.URI, "%s%s", s.Error, since)
		case !s.BehindSince.IsZero():
			r.fail("look at the relay's control plane", step, s.URI, "%s", livestate.RelayAlone(at.Sub(s.BehindSince)))
		case s.Connected:
			r.ok(step, s.URI, "the server answers")
		default:
			r.warn("ask again: it may be starting", step, s.URI, "it has not answered yet")
		}
	}
}

// maxClusters bounds the clusters of a channel that are examined.
const maxClusters = 100

// survey checks the resources of a channel, and returns the clusters whose endpoints are known.
func (r *Report) survey(s *explain.Explanation) (known []*explain.Cluster) {
	if s.Listener == nil {
		r.fail("see docs/tasks/dns.md for when DNS takes over, and the checks above for the control plane", "channel", s.Request.Target, "%s", s.Outcome)
		return nil
	}
	if !r.resource(s.Listener, "the target") {
		return nil
	}
	if rc := s.RouteConfig; rc != nil && rc != s.Listener && !r.resource(rc, fmt.Sprintf("Listener %q", s.Listener.Name)) {
		return nil
	}
	const step = "virtual host"
	chosen := slices.IndexFunc(s.VirtualHosts, func(vh explain.VirtualHost) bool { return vh.Chosen })
	if chosen < 0 {
		r.fail("add the authority to the domains of a virtual host, or dial with grpc.WithAuthority", step, "", "%s", s.Outcome)
		return nil
	}
	r.ok(step, s.VirtualHosts[chosen].Name, "%s", s.VirtualHosts[chosen].Reason)
	if len(s.Clusters) == 0 {
		r.warn("dynxds explain shows what the routes do", "clusters", "", "no route leads to a cluster by name")
	}
	for i, c := range s.Clusters {
		if i == maxClusters {
			r.warn("dynxds explain examines those of one RPC", "clusters", "", "%d more were not examined", len(s.Clusters)-i)
			break
		}
		if r.cluster(c) {
			known = append(known, c)
		}
	}
	for _, note := range s.Notes {
		r.warn("", "note", "", "%s", note)
	}
	return known
}

// resource checks a resource, of which by is what needs it. It reports whether there is one to go on with.
func (r *Report) resource(s *explain.ResourceStatus, by string) bool {
	usable := r.usable(s, by)
	if usable && s.Error == "" {
		r.ok(s.Type, s.Name, "%s", summary(s))
	}
	return usable
}

// summary describes a resource that nothing is wrong with.
func summary(s *explain.ResourceStatus) string {
	text := s.State
	if s.Version != "" {
		text += ", version " + faults.Quote(s.Version)
	}
	if len(s.Ignored) > 0 {
		text += fmt.Sprintf(", %s (see dynxds explain)", faults.Count(len(s.Ignored), "ignored field"))
	}
	return text
}

// usable adds a check only if something is wrong with a resource.
func (r *Report) usable(s *explain.ResourceStatus, by string) bool {
	missing := s.Missing()
	switch {
	case len(s.Faults) > 0:
		r.fail(rejected.about(s.Faults[0]), s.Type, s.Name, "%s", s.Faults[0])
		return false
	case s.Cached && s.Error == "":
		return true
	case s.Cached:
		r.warn(rejected.about(s.Error), s.Type, s.Name, "%s, an older version is in use: %s", s.State, s.Error)
		return true
	case s.State == "NACKED":
		r.fail(rejected.about(s.Error), s.Type, s.Name, "%s: %s", s.State, s.Error)
	case missing.Error != "" && strings.Contains(s.Error, ofRelay):
		r.fail("this server is a relay, whose own control plane fails: correct that or the relay's bootstrap, which dynxds doctor --bootstrap FILE examines", s.Type, s.Name, "%s", s.Error)
	case missing.Error != "" && strings.Contains(s.Error, "PermissionDenied"):
		r.fail("the control plane keeps it from this client: correct its access rules (--access), or the certificate or token of the client", s.Type, s.Name, "%s", s.Error)
	case missing.Error != "" && s.Type == "Listener":
		r.fail("correct the name of the target, or add the service to the control plane", s.Type, s.Name, "%s", cmp.Or(s.Error, missing.Error))
	case missing.Error != "":
		r.fail(fmt.Sprintf("add it to the control plane, for %s", by), s.Type, s.Name, "%s", cmp.Or(s.Error, missing.Error))
	default:
		r.fail(silent, s.Type, s.Name, "%s", missing.Waits)
	}
	return false
}

// ofRelay is in the errors that a relay sends in place of resources.
const ofRelay = "the xDS relay has nothing for this"

// silent is what to do about a resource that has not arrived.
const silent = "look at the control plane: it is connected, and does not answer for this name"

// cluster checks a cluster, and reports whether its endpoints are known.
func (r *Report) cluster(c *explain.Cluster) bool {
	by := "the routes"
	if c.Of != "" {
		by = fmt.Sprintf("cluster %q", c.Of)
	}
	a, text := c.Assignment, ""
	if c.Resource != nil {
		if !r.usable(c.Resource, by) {
			return false
		}
		text = summary(c.Resource) + ", "
	}
	if a != nil && a.Resource != nil && !r.usable(a.Resource, fmt.Sprintf("cluster %q", c.Name)) {
		return false
	}
	const step = "cluster"
	switch {
	case c.Unknown != "":
		r.warn("", step, c.Name, "%s", c.Unknown)
	case c.Waits != "":
		r.fail(silent, step, c.Name, "%s", c.Waits)
	case len(c.Members) > 0 && c.Error != "":
		r.fail("see the clusters under it", step, c.Name, "%s", c.Error)
	case len(c.Members) > 0:
		r.ok(step, c.Name, "%saggregate of %s", text, strings.Join(c.Members, ", "))
	case a == nil:
	case len(a.Endpoints()) == 0:
		r.fail("add endpoints to the service, in a locality with a weight, or correct the tags of the subset", step, c.Name, "there are no endpoints")
	case !slices.ContainsFunc(a.Endpoints(), (*inspect.Endpoint).Usable):
		r.fail("see the health of its endpoints in the control plane", step, c.Name, "no endpoint is HEALTHY or UNKNOWN")
	case c.Refused != "":
		r.fail("its RPCs fail whatever its endpoints do: correct that in the control plane", step, c.Name, "%s", c.Refused)
	default:
		if security := c.Setting("security"); security != "" {
			text += "security: " + security
		}
		count := faults.Count(len(a.Endpoints()), "endpoint")
		if n := len(slices.DeleteFunc(a.Endpoints(), (*inspect.Endpoint).Usable)); n > 0 {
			count += fmt.Sprintf(", %d of them neither HEALTHY nor UNKNOWN", n)
		}
		r.ok(step, c.Name, "%s, %s", strings.TrimSuffix(text, ", "), count)
		return true
	}
	return false
}

// reported checks the endpoints of a cluster by what a process says of them.
func (r *Report) reported(c *explain.Cluster) {
	ready, all := 0, c.Assignment.Endpoints()
	for _, e := range all {
		switch _, how := explain.EndpointText(e); {
		case e.State == inspect.TransientFailure || e.Ejection != nil || e.HealthCheck == "NOT_SERVING":
			r.fail(endpoints.about(e.Error), "endpoint", e.Addresses[0], "%s", strings.Trim(how+": "+e.Error, ": "))
		case e.State == inspect.Ready:
			ready++
		}
	}
	switch {
	case ready > 0:
		r.ok("endpoints", c.Name, "%d of %d connected", ready, len(all))
	case c.Connections != "":
		r.ok("endpoints", c.Name, "%s", c.Connections)
	}
}

// advice is what to do about errors, by texts in them with "|" between. The first that applies counts; "" is in all errors.
type advice []struct{ texts, do string }

// about says what to do about an error.
func (all advice) about(err string) string {
	for _, a := range all {
		for text := range strings.SplitSeq(a.texts, "|") {
			if strings.Contains(err, text) {
				return a.do
			}
		}
	}
	return ""
}

// handshakes is for the errors of TLS with management servers. One that refuses a client's certificate, or its lack of one, ends the
// connection after the handshake of TLS 1.3, and whether its reason is read before that is chance.
var handshakes = advice{
	{"certificate_file|private_key_file", "correct the files of channel_creds in the bootstrap, and their permissions"},
	{"certificate required|bad certificate|expired certificate|unknown certificate authority|right after the TLS handshake|broken pipe|connection reset",
		"the server may want a valid certificate of clients, of an authority that it trusts: write the bootstrap with dynxds bootstrap --cert and --key; it may also be in plaintext"},
	{"", "compare the server's certificate with channel_creds in the bootstrap; the server may also be in plaintext"},
}

// rejected is for the errors in resources.
var rejected = advice{
	{"the bootstrap lacks the certificate provider", "add it to the bootstrap: dynxds bootstrap --mesh-ca, and --mesh-cert and --mesh-key if the service wants a certificate of clients"},
	{"", "correct it in the control plane; dynxds validate finds such errors before clients do"},
}

// servers is for the errors of management servers.
var servers = advice{
	{"is no xDS server", "give server_uri in the bootstrap the address of the control plane; this may be that of a backend"},
	{"token file", "correct jwt_token_file of call_creds in the bootstrap, and mount the token"},
	{"Unauthenticated|PermissionDenied", "give the client what the control plane asks for: a token by call_creds, or a certificate by channel_creds in the bootstrap"},
	{"", "look at the log of the control plane, and at the network to it; resources that are in use stay in use"},
}

// endpoints is for the errors of connections to endpoints.
var endpoints = advice{
	{"connection refused", "start the server, or correct its address in the control plane"},
	{"does not speak TLS", "the server is in plaintext, and the Cluster asks for TLS: give the server a certificate, or remove the Cluster's transport_socket"},
	{"certificate provider", "add the instance to certificate_providers of the bootstrap, or correct its files"},
	{"certificate|x509|tls:", "compare the server's certificate with the roots and names that the Cluster asks for (docs/tasks/tls.md)"},
	{"timeout|in time|deadline|timed out", "look for a firewall or a NetworkPolicy between this host and the server"},
	{"no such host", "correct the name in the control plane, or in DNS"},
	{"error reading server preface|EOF|reset by peer", "the server may want TLS, which the Cluster does not ask for, or is no gRPC server (docs/tasks/tls.md)"},
	{"", "look at the log of the server"},
}
