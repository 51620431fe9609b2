package meshroute

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/dynxds/dynxds/internal/dialect"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/headeredit"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
)

// findings are the reports on the rules for one service. tooMany is set if clients get an error
// instead.
func (c *compiler) findings(tooMany bool) []finding {
	var all []finding
	grpcRoutes := make(map[string]string) // one, by the clients that it is for
	for _, p := range c.parts {
		if p.Policy.Kind == meshpolicy.GRPCRouteKind {
			grpcRoutes[p.Policy.TargetKey()] = p.Policy.Name
		}
	}
	for _, p := range c.parts {
		to := &p.Policy.To[p.To]
		if by := grpcRoutes[p.Policy.TargetKey()]; by != "" && p.Policy.Kind == meshpolicy.HTTPRouteKind {
			all = append(all, finding{severity: Warning, policy: p.Policy.Name, to: p.To, rule: -1,
				message: fmt.Sprintf("this has no effect: %s is for the service %s, too, and beside a GRPCRoute no HTTPRoute counts", by, c.service)})
		}
		for i := range to.Rules {
			at := finding{policy: p.Policy.Name, to: p.To, rule: i}
			all = append(all, c.missingIn(at, &to.Rules[i])...)
			if tooMany && i == 0 {
				at.severity, at.message = Error, fmt.Sprintf("with the other policies for service %s, this one tells apart more than %d kinds of clients; "+
					"use fewer tags", c.service, maxVariants)
				all = append(all, at)
			}
		}
	}
	for _, p := range c.leftOut {
		all = append(all, finding{severity: Error, policy: p.Policy.Name, to: p.To, rule: -1, leftOut: true,
			message: fmt.Sprintf("this has no effect for the service %s: with the older policies of the same namespace for it, it tells apart %s", c.service, perService)})
	}
	all = append(all, c.outranked()...)
	return append(all, c.unreachable()...)
}

// outranked finds rules of routes of the Gateway API that have no effect, as a route of the same group that goes before has a rule
// with the same matches.
func (c *compiler) outranked() []finding {
	type key struct {
		group   meshpolicy.Group
		matches string
	}
	var found []finding
	first := make(map[key]string)
	for _, p := range slices.Backward(c.parts) {
		if p.Policy.Kind == "" {
			continue
		}
		rules := p.Rules()
		for i := range rules {
			k := key{p.Group(), rules[i].MatchesKey()}
			by, outranked := first[k]
			if !outranked {
				first[k] = p.Policy.Name
				continue
			}
			found = append(found, finding{severity: Warning, policy: p.Policy.Name, to: p.To, rule: i, field: "matches",
				message: fmt.Sprintf("this rule has no effect: the route %s, which goes before this one, has a rule for the service %s with the same matches", by, c.service)})
		}
	}
	return found
}

// missingIn finds references to services that do not exist.
func (c *compiler) missingIn(at finding, r *meshpolicy.Rule) []finding {
	var found []finding
	missing := func(severity Severity, field, service, effect string) {
		at.severity, at.field, at.missing, at.message = severity, field, service, fmt.Sprintf("the mesh has no service %q; %s", service, effect)
		found = append(found, at)
	}
	for i, ref := range r.BackendRefs {
		field := fmt.Sprintf("backendRefs[%d]", i)
		switch {
		case c.known(ref.Name):
		case ref.Weight == 0:
			missing(Note, field, ref.Name, "no requests go there")
		default:
			missing(Error, field, ref.Name, "requests that go there fail")
		}
	}
	for i, f := range r.Filters {
		if f.Mirror != nil && !c.known(f.Mirror.Name) {
			missing(Warning, fmt.Sprintf("filters[%d]", i), f.Mirror.Name, "requests are not mirrored")
		}
	}
	return found
}

// unreachable finds rules that no request reaches after a merge of all policies that may count together. (Then no request of a
// client reaches them that has the rule and the one that hides it.)
func (c *compiler) unreachable() []finding {
	namespaces := []string{""}
	for _, p := range c.parts {
		if name := p.Group().Namespace; !slices.Contains(namespaces, name) {
			namespaces = append(namespaces, name)
		}
	}
	var found []finding
	for _, namespace := range namespaces {
		parts := slices.DeleteFunc(slices.Clone(c.parts), func(p meshpolicy.Part) bool {
			return p.Group().Namespace != "" && p.Group().Namespace != namespace
		})
		for _, f := range unreachableIn(meshpolicy.MergeParts(parts)) {
			if !slices.Contains(found, f) {
				found = append(found, f)
			}
		}
	}
	return found
}

func unreachableIn(m Merged) []finding {
	var found []finding
	for _, r := range m.Routes() {
		if !r.Unreachable {
			continue
		}
		from := r.Rule.MatchesFrom[0]
		found = append(found, finding{severity: Warning, policy: from.Policy.Name, to: from.To, rule: from.Rule, field: "matches",
			message: fmt.Sprintf("%q is never reached by clients that also have the rule for the path prefix /, which is tried before regular expressions and matches without a path", r.Match)})
	}
	return found
}

// report makes the reports of the finished mesh.
func (b *builder) report() {
	m, suggested := b.mesh, 0
	for _, name := range m.names {
		for _, f := range m.destinations[name].compiled.findings {
			report := f.at(b.policies[f.policy])
			// Authors of their own are not told of the services of others.
			if f.missing != "" && !b.in.Separate && suggested < maxSuggested {
				suggested++
				if nearest := faults.Nearest(f.missing, slices.Sorted(maps.Keys(m.services))); nearest != "" {
					report.Message += fmt.Sprintf("; did you mean %q?", nearest)
				}
			}
			m.reports = append(m.reports, report)
		}
	}
	for _, p := range b.in.Policies {
		for _, n := range p.Notes {
			m.reports = append(m.reports, Report{Severity: Warning, Policy: p.Name, Source: Source{File: p.Source.File, Line: n.Line}, Path: n.Path, Message: n.Text})
		}
		for i := range p.To {
			for j := range p.To[i].Rules {
				b.reportRule(p, i, j)
			}
		}
	}
	m.serviceReports = make(map[string][]Report)
	for name, s := range m.services {
		var list []Report
		if p := b.previous; p != nil && p.services[name] == s {
			list = p.serviceReports[name]
		} else {
			list = reportsOf(s)
		}
		if len(list) > 0 {
			m.serviceReports[name] = list
			m.reports = append(m.reports, list...)
		}
	}
	slices.SortFunc(m.reports, func(x, y Report) int {
		return cmp.Or(strings.Compare(x.Source.File, y.Source.File), cmp.Compare(x.Source.Line, y.Source.Line),
			strings.Compare(x.Policy, y.Policy), strings.Compare(x.Path, y.Path), strings.Compare(x.Message, y.Message))
	})
	m.reports = slices.Compact(m.reports)
}

// differs adds a report on what other clients do about a feature, for which args are.
func (b *builder) differs(severity Severity, at Source, path string, f *dialect.Feature, args ...any) {
	clients, note := f.Note()
	if len(args) > 0 {
		note = fmt.Sprintf(note, args...)
	}
	b.mesh.reports = append(b.mesh.reports, Report{Severity: severity, Clients: clients, Source: at, Path: path, Message: note})
}

func (b *builder) reportService(s *Service) {
	for i := range s.Endpoints {
		if !s.Endpoints[i].isIP() {
			host, _, _ := splitAddress(s.Endpoints[i].Address)
			b.differs(Warning, s.Source, fmt.Sprintf("endpoints[%d].address", i), dialect.HostNames, host)
		}
	}
	for i, f := range s.Filters {
		name := f.GetTypedConfig().MessageName()
		if f.GetIsOptional() && name == sessionFilter {
			b.differs(Note, s.Source, "sessionAffinity", dialect.Sessions)
		}
		if !f.GetIsOptional() && !dialect.IsUniversal(string(name)) {
			b.differs(Warning, s.Source, fmt.Sprintf("filters[%d]", i), dialect.Filters, name)
		}
	}
	if !s.TLS.isOff() {
		if len(s.TLS.SANs) == 0 {
			b.mesh.reports = append(b.mesh.reports, Report{Severity: Warning, Source: s.Source, Path: "tls",
				Message: "without subjectAltNames clients accept every certificate of the roots, those of other services too"})
		}
		b.differs(Note, s.Source, "tls", dialect.Providers)
	}
	for locality := range s.LocalityWeights {
		if !slices.ContainsFunc(s.Endpoints, func(e Endpoint) bool { return e.Locality == locality }) {
			b.mesh.reports = append(b.mesh.reports, Report{Severity: Warning, Source: s.Source, Path: "localities",
				Message: fmt.Sprintf("no endpoint is in the locality %s/%s/%s, which has a weight", locality.Region, locality.Zone, locality.SubZone)})
		}
	}
	s.settingsBeyondGRPC(func(path string, f *dialect.Feature) { b.differs(Note, s.Source, path, f) })
}

func (b *builder) reportRule(p *Policy, to, rule int) {
	r := &p.To[to].Rules[rule]
	if r.Unsupported() != "" {
		return // its fault is reported by who read it
	}
	add := func(s Severity, field, clients, message string) {
		f := finding{severity: s, clients: clients, to: to, rule: rule, field: field, message: message}
		b.mesh.reports = append(b.mesh.reports, f.at(p))
	}
	for i := range r.Matches {
		// In a GRPCRoute it is the name of a service.
		if path := r.Matches[i].Path; p.Kind != meshpolicy.GRPCRouteKind && path.Type == meshpolicy.Prefix && isPackage(path.Value) {
			add(Warning, "matches", "", fmt.Sprintf("prefixes match whole segments: %s matches the methods of a service of that name, and no service of a package; "+
				`write the service, as in /grpc.health.v1.Health, or the regular expression %s\..*`, path.Value, regexp.QuoteMeta(strings.TrimSuffix(path.Value, "."))))
		}
		reportMatch(&r.Matches[i], func(s Severity, clients, message string) { add(s, "matches", clients, message) })
	}
	for i := range r.Filters {
		field := fmt.Sprintf("filters[%d]", i)
		reportFilter(&r.Filters[i], func(s Severity, clients, message string) { add(s, field, clients, message) })
		if mirror := r.Filters[i].Mirror; mirror != nil {
			b.reportSubset(p, finding{to: to, rule: rule, field: field}, mirror, "the copies of requests fail")
		}
	}
	differs := func(when bool, field string, f *dialect.Feature) {
		if clients, note := f.Note(); when {
			add(Note, field, clients, note)
		}
	}
	differs(r.Timeouts != nil && r.Timeouts.BackendRequest != nil && *r.Timeouts.BackendRequest > 0, "timeouts.backendRequest", dialect.TryTimeouts)
	differs(r.Retry != nil && !strings.Contains(retryPolicy(r.Retry, nil).GetRetryOn(), "unavailable"), "retry", dialect.RetryConditions)
	differs(r.Session != nil, "sessionPersistence", dialect.Sessions)
	differs(r.Nowhere(), "backendRefs", dialect.ZeroWeights)
	switch {
	case r.NoBackends:
		add(Warning, "backendRefs", "", "the rule has none, so RPCs fail with UNAVAILABLE; name the Service to send them there")
	case r.Nowhere():
		add(Warning, "backendRefs", "", "no backend has a weight above 0, so RPCs fail with UNAVAILABLE")
	}
	for i := range r.BackendRefs {
		for j := range r.BackendRefs[i].Filters {
			reportFilter(&r.BackendRefs[i].Filters[j], func(s Severity, clients, message string) {
				add(s, fmt.Sprintf("backendRefs[%d].filters[%d]", i, j), clients, message)
			})
		}
		if r.BackendRefs[i].Weight == 0 {
			continue
		}
		b.reportSubset(p, finding{to: to, rule: rule, field: fmt.Sprintf("backendRefs[%d]", i)}, &r.BackendRefs[i], "requests that go there fail")
	}
}

// reportSubset reports a destination without endpoints, and what comes of that, at the tag that no endpoint has.
func (b *builder) reportSubset(p *Policy, at finding, ref *meshpolicy.BackendRef, effect string) {
	if r := b.mesh.resources[ref.Name]; r == nil || len(ref.Tags) == 0 || !r.empty[ref.Subset().ID] {
		return
	}
	tag, suggestion := b.mesh.services[ref.Name].lacking(ref.Tags)
	at.severity, at.message = Warning, fmt.Sprintf("no endpoint of service %s has the tags %s; %s%s", ref.Name, meshpolicy.FormatTags(ref.Tags), effect, suggestion)
	report := at.at(p)
	if line := ref.TagLines[tag]; line > 0 {
		report.Source.Line = line
	}
	b.mesh.reports = append(b.mesh.reports, report)
}

// lacking returns the first of the tags that no endpoint has, with a suggestion of another key or value for the end of a message.
// Both are empty if each tag is that of some endpoint.
func (s *Service) lacking(tags map[string]string) (tag, suggestion string) {
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		keys, values := make(map[string]bool), make(map[string]bool)
		for i := range s.Endpoints {
			for k, v := range s.Endpoints[i].Tags {
				keys[k] = true
				if k == key {
					values[v] = true
				}
			}
		}
		switch {
		case values[tags[key]]:
		case keys[key]:
			return key, suggest(tags[key], values)
		default:
			return key, suggest(key, keys)
		}
	}
	return "", ""
}

// maxSuggested bounds a list of all that a word may be, and the services in place of which others are suggested.
const maxSuggested = 5

// suggest returns what the word may be meant to be, "" if that cannot be said in a few words.
func suggest(word string, known map[string]bool) string {
	choices := slices.Sorted(maps.Keys(known))
	if len(choices) == 0 || len(choices) > maxSuggested && faults.Nearest(word, choices) == "" {
		return ""
	}
	return "; " + faults.DidYouMean(word, choices)
}

// reportMatch reports the parts of a match that gRPC clients interpret differently.
func reportMatch(m *meshpolicy.Match, add func(s Severity, clients, message string)) {
	if len(m.Methods) > 0 {
		if slices.Contains(m.Methods, "POST") {
			add(Note, "", "every RPC has the method POST, so methods makes no difference")
		} else {
			add(Warning, "", "every RPC has the method POST, so no RPC matches "+strings.Join(m.Methods, ", "))
		}
	}
	segments := strings.Count(m.Path.Value, "/")
	switch {
	case m.Path.IsAny():
	case m.Path.Type == meshpolicy.Exact && segments != 2, m.Path.Type == meshpolicy.Prefix && segments > 2:
		add(Warning, "", fmt.Sprintf("the path of an RPC is /package.Service/Method, so no RPC matches %s %s", m.Path.Type, m.Path.Value))
	}
	for _, h := range m.Headers {
		if strings.HasSuffix(h.Name, "-bin") && h.Type != meshpolicy.Absent {
			add(Warning, "", fmt.Sprintf("gRPC takes headers whose names end in -bin for absent, so no RPC matches %q", h))
		}
	}
	if len(m.Query) > 0 {
		add(Warning, "", "the path of an RPC has no query, so no RPC matches queryParams")
	}
}

// isPackage reports whether a path prefix seems to be a package, so that it ends inside of a path's segment: its last name
// begins with a small letter, where services begin with a capital one.
func isPackage(prefix string) bool {
	segment := strings.TrimPrefix(prefix, "/")
	name := segment[strings.LastIndexByte(segment, '.')+1:]
	return segment != "" && !strings.Contains(segment, "/") && (name == "" || 'a' <= name[0] && name[0] <= 'z')
}

// reportFilter reports the parts of a filter that gRPC clients do not implement.
func reportFilter(f *meshpolicy.Filter, add func(s Severity, clients, message string)) {
	differs := func(f *dialect.Feature) {
		clients, note := f.Note()
		add(Note, clients, note)
	}
	switch f.Type {
	case meshpolicy.RequestRedirect:
		add(Warning, "", "gRPC clients do not follow redirects: RPCs end with an error that names the place")
		differs(dialect.Redirects)
	case meshpolicy.RequestMirror:
		differs(dialect.Mirrors)
	case meshpolicy.URLRewrite:
		if f.Rewrite.Hostname != "" {
			add(Note, "", "clients rewrite the authority only if the server has trusted_xds_server in their bootstrap configuration (gRFC A81)")
		}
		if f.Rewrite.Path != nil {
			differs(dialect.PathRewrites)
		}
		if p := f.Rewrite.Path; p != nil && p.Full && strings.Count(p.Value, "/") != 2 {
			add(Warning, "", fmt.Sprintf("the path of an RPC is /package.Service/Method; no gRPC server has %s", p.Value))
		}
	default:
		reportHeaders(f, add)
		differs(dialect.HeaderEdits)
	}
}

func reportHeaders(f *meshpolicy.Filter, add func(s Severity, clients, message string)) {
	side := headeredit.Request
	if f.Type == meshpolicy.ResponseHeaderModifier {
		side = headeredit.Response
	}
	check := func(name string) bool {
		_, err := headeredit.Name(side, name)
		if err != nil {
			add(Warning, "", "gRPC clients leave this out: "+err.Error())
		}
		return err == nil
	}
	for _, option := range headerOptions(f.Headers) {
		name := option.GetHeader().GetKey()
		if !check(name) {
			continue
		}
		if _, err := headeredit.Value(name, option.GetHeader()); err != nil {
			add(Warning, "", "gRPC clients leave this out: "+err.Error())
		}
	}
	for _, name := range f.Headers.Remove {
		check(name)
	}
}
