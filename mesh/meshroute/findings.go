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

// report makes the reports on the rules for the service. leftOut are parts that do not count. tooMany is set if clients get an error
// instead.
func (c *compiler) report(leftOut []meshpolicy.Part, tooMany bool) {
	grpcRoutes := make(map[string]string) // one, by the clients that it is for
	for _, p := range c.parts {
		if p.Policy.Kind == meshpolicy.GRPCRouteKind {
			grpcRoutes[p.Policy.TargetKey()] = p.Policy.Name
		}
	}
	for _, p := range c.parts {
		if by := grpcRoutes[p.Policy.TargetKey()]; by != "" && p.Policy.Kind == meshpolicy.HTTPRouteKind {
			c.add(reportOn(p, Warning, fmt.Sprintf("this has no effect: %s is for the service %s, too, and beside a GRPCRoute no HTTPRoute counts", by, c.service)))
		}
		for i := range p.Rules() {
			c.reportMissing(p, i)
		}
		if tooMany && len(p.Rules()) > 0 {
			c.add(reportOnRule(p, 0, "", Error, fmt.Sprintf("with the other policies for service %s, this one tells apart more than %d kinds of clients; "+
				"use fewer tags", c.service, maxVariants)))
		}
	}
	for _, p := range leftOut {
		c.add(reportOnLeftOut(p, fmt.Sprintf(
			"this has no effect for the service %s: with the older policies of the same namespace for it, it tells apart %s", c.service, perService)))
	}
	c.reportOutranked()
	c.reportUnreachable()
}

func (c *compiler) add(r Report) { c.reports = append(c.reports, r) }

// reportOutranked reports rules of routes of the Gateway API that have no effect, as a route of the same group that goes before has a
// rule with the same matches.
func (c *compiler) reportOutranked() {
	type key struct {
		group   meshpolicy.Group
		matches string
	}
	first := make(map[key]string)
	for _, p := range slices.Backward(c.parts) {
		if p.Policy.Kind == "" {
			continue
		}
		rules := p.Rules()
		for i := range rules {
			k := key{p.Group(), rules[i].MatchesKey()}
			if by, outranked := first[k]; outranked {
				c.add(reportOnRule(p, i, "matches", Warning, fmt.Sprintf(
					"this rule has no effect: the route %s, which goes before this one, has a rule for the service %s with the same matches", by, c.service)))
			} else {
				first[k] = p.Policy.Name
			}
		}
	}
}

// reportMissing reports references to services that do not exist.
func (c *compiler) reportMissing(p meshpolicy.Part, rule int) {
	missing := func(severity Severity, field, service, effect string) {
		r := reportOnRule(p, rule, field, severity, fmt.Sprintf("the mesh has no service %q; %s", service, effect))
		c.add(r)
		if c.suspects == nil {
			c.suspects = make(map[Report]string)
		}
		c.suspects[r] = service
	}
	r := &p.Rules()[rule]
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
}

// reportUnreachable reports rules that no request reaches after a merge of all policies that may count together. (Then no request of
// a client reaches them that has the rule and the one that hides it.)
func (c *compiler) reportUnreachable() {
	namespaces := []string{""}
	for _, p := range c.parts {
		if name := p.Group().Namespace; !slices.Contains(namespaces, name) {
			namespaces = append(namespaces, name)
		}
	}
	for _, namespace := range namespaces {
		parts := slices.DeleteFunc(slices.Clone(c.parts), func(p meshpolicy.Part) bool {
			return p.Group().Namespace != "" && p.Group().Namespace != namespace
		})
		for _, r := range meshpolicy.MergeParts(parts).Routes() {
			if r.Unreachable {
				from := r.Rule.MatchesFrom[0]
				c.add(reportOnRule(from.Part, from.Rule, "matches", Warning, fmt.Sprintf(
					"%q is never reached by clients that also have the rule for the path prefix /, which is tried before regular expressions and matches without a path", r.Match)))
			}
		}
	}
}

// Reports returns the reports for the authors of policies and services, ordered by file and line. It makes them at each call.
func (m *Mesh) Reports() []Report {
	reports, missing := slices.Clone(m.leftOut), make(map[Report]string)
	for _, d := range m.destinations {
		if d == nil {
			continue
		}
		if d.own != nil {
			reports = append(reports, d.own.reports...)
		}
		reports = append(reports, d.compiled.reports...)
		maps.Copy(missing, d.suspects)
	}
	reports = append(reports, m.policies.reports()...)
	for _, p := range m.policies.counting {
		for i := range p.To {
			if len(p.To[i].Subsets()) > 0 {
				reports = append(reports, m.reportsOnSubsets(meshpolicy.Part{Policy: p, To: i})...)
			}
		}
	}
	slices.SortFunc(reports, func(x, y Report) int {
		return cmp.Or(strings.Compare(x.Source.File, y.Source.File), cmp.Compare(x.Source.Line, y.Source.Line),
			strings.Compare(x.Policy, y.Policy), strings.Compare(x.Path, y.Path), strings.Compare(x.Message, y.Message))
	})
	reports = slices.Compact(reports)
	if len(missing) > 0 && !m.in.Separate { // authors of their own are not told of the services of others
		m.suggest(reports, missing)
	}
	return reports
}

// suggest adds to the first reports on missing services which ones may be meant.
func (m *Mesh) suggest(reports []Report, missing map[Report]string) {
	left, names := maxSuggested, m.serviceNames()
	for i := range reports {
		name := missing[reports[i]]
		if name == "" || left == 0 {
			continue
		}
		left--
		if nearest := faults.Nearest(name, names); nearest != "" {
			reports[i].Message += fmt.Sprintf("; did you mean %q?", nearest)
		}
	}
}

// serviceNames returns the names of the services that are there, in order.
func (m *Mesh) serviceNames() (names []string) {
	for _, d := range m.destinations {
		if d.resourcesOfService() != nil {
			names = append(names, d.service)
		}
	}
	slices.Sort(names)
	return names
}

// differs is a report on what other clients do about a feature, for which args are.
func differs(severity Severity, at Source, path string, f *dialect.Feature, args ...any) Report {
	clients, note := f.Note()
	if len(args) > 0 {
		note = fmt.Sprintf(note, args...)
	}
	return Report{Severity: severity, Clients: clients, Source: at, Path: path, Message: note}
}

// reports are on the service by itself.
func (s *Service) reports() (reports []Report) {
	add := func(r Report) { reports = append(reports, r) }
	for i := range s.Endpoints {
		if !s.Endpoints[i].isIP() {
			host, _, _ := splitAddress(s.Endpoints[i].Address)
			add(differs(Warning, s.Source, fmt.Sprintf("endpoints[%d].address", i), dialect.HostNames, host))
		}
	}
	for i, f := range s.Filters {
		name := f.GetTypedConfig().MessageName()
		if f.GetIsOptional() && name == sessionFilter {
			add(differs(Note, s.Source, "sessionAffinity", dialect.Sessions))
		}
		if !f.GetIsOptional() && !dialect.IsUniversal(string(name)) {
			add(differs(Warning, s.Source, fmt.Sprintf("filters[%d]", i), dialect.Filters, name))
		}
	}
	if !s.TLS.isOff() {
		if len(s.TLS.SANs) == 0 {
			add(Report{Severity: Warning, Source: s.Source, Path: "tls",
				Message: "without subjectAltNames clients accept every certificate of the roots, those of other services too"})
		}
		add(differs(Note, s.Source, "tls", dialect.Providers))
	}
	for locality := range s.LocalityWeights {
		if !slices.ContainsFunc(s.Endpoints, func(e Endpoint) bool { return e.Locality == locality }) {
			add(Report{Severity: Warning, Source: s.Source, Path: "localities",
				Message: fmt.Sprintf("no endpoint is in the locality %s/%s/%s, which has a weight", locality.Region, locality.Zone, locality.SubZone)})
		}
	}
	s.settingsBeyondGRPC(func(path string, f *dialect.Feature) { add(differs(Note, s.Source, path, f)) })
	return reports
}

// reports are on the policies by themselves.
func (x *policyIndex) reports() []Report {
	x.once.Do(func() {
		x.list = x.leftOut
		for _, p := range x.counting {
			for _, n := range p.Notes {
				x.list = append(x.list, Report{Severity: Warning, Policy: p.Name, Source: Source{File: p.Source.File, Line: n.Line}, Path: n.Path, Message: n.Text})
			}
			for i := range p.To {
				for j := range p.To[i].Rules {
					x.list = append(x.list, reportsOnRule(meshpolicy.Part{Policy: p, To: i}, j)...)
				}
			}
		}
	})
	return x.list
}

func reportsOnRule(p meshpolicy.Part, rule int) (reports []Report) {
	r := &p.Rules()[rule]
	if r.Unsupported() != "" {
		return nil // the reader of the policy has reported the error
	}
	add := func(s Severity, field, clients, message string) {
		report := reportOnRule(p, rule, field, s, message)
		report.Clients = clients
		reports = append(reports, report)
	}
	for i := range r.Matches {
		// In a GRPCRoute it is the name of a service.
		if path := r.Matches[i].Path; p.Policy.Kind != meshpolicy.GRPCRouteKind && path.Type == meshpolicy.Prefix && isPackage(path.Value) {
			add(Warning, "matches", "", fmt.Sprintf("prefixes match whole segments: %s matches the methods of a service of that name, and no service of a package; "+
				`write the service, as in /grpc.health.v1.Health, or the regular expression %s\..*`, path.Value, regexp.QuoteMeta(strings.TrimSuffix(path.Value, "."))))
		}
		reportMatch(&r.Matches[i], func(s Severity, clients, message string) { add(s, "matches", clients, message) })
	}
	for i := range r.Filters {
		field := fmt.Sprintf("filters[%d]", i)
		reportFilter(&r.Filters[i], func(s Severity, clients, message string) { add(s, field, clients, message) })
	}
	note := func(when bool, field string, f *dialect.Feature) {
		if clients, text := f.Note(); when {
			add(Note, field, clients, text)
		}
	}
	note(r.Timeouts != nil && r.Timeouts.BackendRequest != nil && *r.Timeouts.BackendRequest > 0, "timeouts.backendRequest", dialect.TryTimeouts)
	note(r.Retry != nil && !strings.Contains(retryPolicy(r.Retry, nil).GetRetryOn(), "unavailable"), "retry", dialect.RetryConditions)
	note(r.Session != nil, "sessionPersistence", dialect.Sessions)
	note(r.Nowhere(), "backendRefs", dialect.ZeroWeights)
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
	}
	return reports
}

// reportsOnSubsets are on the subsets in the rules of a part that have no endpoints.
func (m *Mesh) reportsOnSubsets(p meshpolicy.Part) (reports []Report) {
	for rule := range p.Rules() {
		r := &p.Rules()[rule]
		if r.Unsupported() != "" {
			continue
		}
		report := func(ref *meshpolicy.BackendRef, field string, at int, effect string) {
			if problem, line := m.emptySubset(ref, effect); problem != "" {
				one := reportOnRule(p, rule, fmt.Sprintf("%s[%d]", field, at), Warning, problem)
				one.Source.Line = cmp.Or(line, one.Source.Line)
				reports = append(reports, one)
			}
		}
		for i := range r.Filters {
			if mirror := r.Filters[i].Mirror; mirror != nil {
				report(mirror, "filters", i, "the copies of requests fail")
			}
		}
		for i := range r.BackendRefs {
			if r.BackendRefs[i].Weight > 0 {
				report(&r.BackendRefs[i], "backendRefs", i, "requests that go there fail")
			}
		}
	}
	return reports
}

// emptySubset says that a subset has no endpoints, and what comes of that, with the line of the tag that no endpoint has, or 0. It is
// empty for a subset that has some.
func (m *Mesh) emptySubset(ref *meshpolicy.BackendRef, effect string) (problem string, line int) {
	r := m.service(ref.Name)
	if r == nil || len(ref.Tags) == 0 || !r.empty[ref.Subset().ID] {
		return "", 0
	}
	tag, suggestion := r.service.lacking(ref.Tags)
	return fmt.Sprintf("no endpoint of service %s has the tags %s; %s%s", ref.Name, meshpolicy.FormatTags(ref.Tags), effect, suggestion), ref.TagLines[tag]
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
