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
func (c *compiler) report(leftOut []*meshpolicy.To, tooMany bool) {
	grpcRoutes := make(map[string]string) // one, by the clients that it is for
	for _, p := range c.parts {
		if p.Policy.Kind == meshpolicy.GRPCRouteKind {
			grpcRoutes[p.Group().Namespace] = p.Policy.Name
		}
	}
	for _, p := range c.parts {
		if by := grpcRoutes[p.Group().Namespace]; by != "" && p.Policy.Kind == meshpolicy.HTTPRouteKind {
			c.add(onPart(p).says(Warning, "this has no effect: %s is for the service %s, too, and beside a GRPCRoute no HTTPRoute counts", by, c.service))
		}
		if tooMany && len(p.Rules) > 0 {
			c.add(onRule(&p.Rules[0], "").says(Error, "with the other policies for service %s, this one tells apart more than %d kinds of clients; "+
				"use fewer tags", c.service, maxVariants))
		}
	}
	for _, p := range leftOut {
		c.add(onLeftOut(p, "this has no effect for the service %s: with the older policies of the same namespace for it, it tells apart %s", c.service, perService))
	}
	c.reportOutranked()
	c.reportUnreachable()
}

func (c *compiler) add(r Report) { c.reports = append(c.reports, r) }

// reportOutranked reports rules of routes of the Gateway API that have no effect, as a route of the same group that goes before has a
// rule with the same matches.
func (c *compiler) reportOutranked() {
	first := make(map[[3]string]string) // the name of the route, by its group and the matches
	for _, p := range slices.Backward(c.parts) {
		if p.Policy.Kind == "" {
			continue
		}
		for i := range p.Rules {
			k := [...]string{p.Policy.Kind, p.Group().Namespace, p.Rules[i].MatchesKey()}
			if by, outranked := first[k]; outranked {
				c.add(onRule(&p.Rules[i], "matches").says(Warning,
					"this rule has no effect: the route %s, which goes before this one, has a rule for the service %s with the same matches", by, c.service))
			} else {
				first[k] = p.Policy.Name
			}
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
		parts := slices.DeleteFunc(slices.Clone(c.parts), func(p *meshpolicy.To) bool {
			return p.Group().Namespace != "" && p.Group().Namespace != namespace
		})
		for _, r := range meshpolicy.MergeParts(parts).Routes() {
			if r.Unreachable {
				c.add(onRule(r.Rule.MatchesFrom[0], "matches").says(Warning,
					"%q is never reached by clients that also have the rule for the path prefix /, which is tried before regular expressions and matches without a path", r.Match))
			}
		}
	}
}

// Reports returns the reports for the authors of policies and services, ordered by file and line. It makes them at each call.
func (m *Mesh) Reports() []Report {
	lists := [][]Report{m.leftOut, m.reportsOnReferences()}
	add := func(list []Report) {
		if len(list) > 0 { // few have some
			lists = append(lists, list)
		}
	}
	for _, p := range m.wideOut {
		add([]Report{onLeftOut(p, "this has no effect: with the older policies of the same namespace for all Services it tells apart %s", widely)})
	}
	for _, of := range m.mentions.All {
		add(of.reports())
	}
	for _, own := range m.services.All {
		add(own.reports)
	}
	for _, d := range m.destinations.All {
		add(d.reports)
	}
	reports := slices.Concat(lists...)
	slices.SortFunc(reports, func(x, y Report) int {
		return cmp.Or(strings.Compare(x.Source.File, y.Source.File), cmp.Compare(x.Source.Line, y.Source.Line),
			strings.Compare(x.Policy, y.Policy), strings.Compare(x.Path, y.Path), strings.Compare(x.Message, y.Message))
	})
	return slices.Compact(reports)
}

// reports are on the service by itself.
func (s *Service) reports() (reports []Report) {
	add := func(r Report) { reports = append(reports, r) }
	at := func(path string) Report { return Report{Source: s.Source, Path: path} }
	for i := range s.Endpoints {
		if !s.Endpoints[i].isIP() {
			host, _, _ := ParseAddress(s.Endpoints[i].Address)
			add(at(fmt.Sprintf("endpoints[%d].address", i)).differs(Warning, dialect.HostNames, host))
		}
	}
	for i, f := range s.Filters {
		name := f.GetTypedConfig().MessageName()
		if f.GetIsOptional() && name == sessionFilter {
			add(at("sessionAffinity").differs(Note, dialect.Sessions))
		}
		if !f.GetIsOptional() && !dialect.IsUniversal(string(name)) {
			add(at(fmt.Sprintf("filters[%d]", i)).differs(Warning, dialect.Filters, name))
		}
	}
	if !s.TLS.isOff() {
		if len(s.TLS.SANs) == 0 {
			add(at("tls").says(Warning, "without subjectAltNames clients accept every certificate of the roots, those of other services too"))
		}
		add(at("tls").differs(Note, dialect.Providers))
	}
	for locality := range s.LocalityWeights {
		if !slices.ContainsFunc(s.Endpoints, func(e Endpoint) bool { return e.Locality == locality }) {
			add(at("localities").says(Warning, "no endpoint is in the locality %s/%s/%s, which has a weight", locality.Region, locality.Zone, locality.SubZone))
		}
	}
	s.settingsBeyondGRPC(func(path string, f *dialect.Feature) { add(at(path).differs(Note, f)) })
	return reports
}

// findings collects reports on a field of a rule.
type findings struct {
	rule  *meshpolicy.Rule
	field string
	list  []Report
}

func (f *findings) add(s Severity, format string, args ...any) {
	f.list = append(f.list, onRule(f.rule, f.field).says(s, format, args...))
}

// differs adds a report on what other clients do about a feature.
func (f *findings) differs(feature *dialect.Feature) {
	f.list = append(f.list, onRule(f.rule, f.field).differs(Note, feature))
}

// reportsOn are on parts of policies by themselves.
func reportsOn(parts []*meshpolicy.To) []Report {
	var f findings
	for _, part := range parts {
		p := part.Policy
		for _, n := range p.Notes {
			f.list = append(f.list, Report{Severity: Warning, Policy: p.Name, Source: Source{File: p.Source.File, Line: n.Line}, Path: n.Path, Message: n.Problem})
		}
		for i := range part.Rules {
			f.onRule(&part.Rules[i])
		}
	}
	return f.list
}

func (f *findings) onRule(r *meshpolicy.Rule) {
	if r.Problem != "" {
		return // the reader of the policy has reported the error
	}
	f.rule, f.field = r, "matches"
	for i := range r.Matches {
		f.onMatch(&r.Matches[i])
	}
	f.onFilters("filters", r.Filters)
	for i := range r.BackendRefs {
		f.onFilters(fmt.Sprintf("backendRefs[%d].filters", i), r.BackendRefs[i].Filters)
	}
	note := func(when bool, field string, feature *dialect.Feature) {
		if f.field = field; when {
			f.differs(feature)
		}
	}
	note(r.Timeouts != nil && r.Timeouts.BackendRequest != nil && *r.Timeouts.BackendRequest > 0, "timeouts.backendRequest", dialect.TryTimeouts)
	note(r.Retry != nil && !strings.Contains(retryPolicy(r.Retry, nil).GetRetryOn(), "unavailable"), "retry", dialect.RetryConditions)
	note(r.Session != nil, "sessionPersistence", dialect.Sessions)
	note(r.Nowhere(), "backendRefs", dialect.ZeroWeights)
	switch {
	case r.NoBackends:
		f.add(Warning, "the rule has none, so RPCs fail with UNAVAILABLE; name the Service to send them there")
	case r.Nowhere():
		f.add(Warning, "no backend has a weight above 0, so RPCs fail with UNAVAILABLE")
	}
}

// onMatch reports the parts of a match that gRPC clients interpret differently.
func (f *findings) onMatch(m *meshpolicy.Match) {
	path, segments := m.Path, strings.Count(m.Path.Value, "/")
	// In a GRPCRoute it is the name of a service.
	if f.rule.To.Policy.Kind != meshpolicy.GRPCRouteKind && path.Type == meshpolicy.Prefix && isPackage(path.Value) {
		f.add(Warning, "prefixes match whole segments: %s matches the methods of a service of that name, and no service of a package; "+
			`write the service, as in /grpc.health.v1.Health, or the regular expression %s\..*`, path.Value, regexp.QuoteMeta(strings.TrimSuffix(path.Value, ".")))
	}
	if slices.Contains(m.Methods, "POST") {
		f.add(Note, "every RPC has the method POST, so methods makes no difference")
	} else if len(m.Methods) > 0 {
		f.add(Warning, "every RPC has the method POST, so no RPC matches %s", strings.Join(m.Methods, ", "))
	}
	switch {
	case path.IsAny():
	case path.Type == meshpolicy.Exact && segments != 2, path.Type == meshpolicy.Prefix && segments > 2:
		f.add(Warning, "the path of an RPC is /package.Service/Method, so no RPC matches %s %s", path.Type, path.Value)
	}
	for _, h := range m.Headers {
		if strings.HasSuffix(h.Name, "-bin") && h.Type != meshpolicy.Absent {
			f.add(Warning, "gRPC takes headers whose names end in -bin for absent, so no RPC matches %q", h)
		}
	}
	if len(m.Query) > 0 {
		f.add(Warning, "the path of an RPC has no query, so no RPC matches queryParams")
	}
}

// isPackage reports whether a path prefix seems to be a package, so that it ends inside of a path's segment: its last name
// begins with a small letter, where services begin with a capital one.
func isPackage(prefix string) bool {
	segment := strings.TrimPrefix(prefix, "/")
	name := segment[strings.LastIndexByte(segment, '.')+1:]
	return segment != "" && !strings.Contains(segment, "/") && (name == "" || 'a' <= name[0] && name[0] <= 'z')
}

// onFilters reports the parts of filters that gRPC clients do not implement.
func (f *findings) onFilters(field string, filters []meshpolicy.Filter) {
	for i := range filters {
		f.field = fmt.Sprintf("%s[%d]", field, i)
		filter := &filters[i]
		switch filter.Type {
		case meshpolicy.RequestRedirect:
			f.add(Warning, "gRPC clients do not follow redirects: RPCs end with an error that names the place")
			f.differs(dialect.Redirects)
		case meshpolicy.RequestMirror:
			f.differs(dialect.Mirrors)
		case meshpolicy.URLRewrite:
			if filter.Rewrite.Hostname != "" {
				f.add(Note, "clients rewrite the authority only if the server has trusted_xds_server in their bootstrap configuration (gRFC A81)")
			}
			path := filter.Rewrite.Path
			if path != nil {
				f.differs(dialect.PathRewrites)
			}
			if path != nil && path.Full && strings.Count(path.Value, "/") != 2 {
				f.add(Warning, "the path of an RPC is /package.Service/Method; no gRPC server has %s", path.Value)
			}
		case meshpolicy.RequestHeaderModifier:
			f.onHeaders(headeredit.Request, filter.Headers)
		case meshpolicy.ResponseHeaderModifier:
			f.onHeaders(headeredit.Response, filter.Headers)
		}
	}
}

func (f *findings) onHeaders(side headeredit.Side, m *meshpolicy.HeaderModifier) {
	f.differs(dialect.HeaderEdits)
	_, ignored := headeredit.FromOptions(side, headerOptions(m))
	for _, name := range m.Remove {
		if _, err := headeredit.Removal(side, name); err != nil {
			ignored = append(ignored, err.Error())
		}
	}
	for _, why := range ignored {
		f.add(Warning, "gRPC clients leave this out: %s", why)
	}
}

// reportsOnReferences are on rules that name services that do not exist, or subsets without endpoints. It looks only at what names such.
func (m *Mesh) reportsOnReferences() (reports []Report) {
	var lacking, known []string
	for name := range m.mentions.All {
		if own := m.service(name); own == nil || len(own.empty) > 0 {
			lacking = append(lacking, name)
		}
	}
	slices.Sort(lacking)
	suggested := 0
	for _, name := range lacking {
		own, first := m.service(name), len(reports)
		for _, to := range m.mention(name).from {
			if to.TargetRef.Name != "" && m.service(to.TargetRef.Name) == nil {
				continue // no requests go anywhere
			}
			for i := range to.Rules {
				for ref := range to.Rules[i].References() {
					if ref.Name == name {
						reports = append(reports, onReference(&to.Rules[i], ref, own)...)
					}
				}
			}
		}
		if own != nil || len(reports) == first || m.in.Separate || suggested == maxSuggested {
			continue // authors of their own are not told of the services of others
		}
		if suggested++; known == nil {
			for service := range m.services.All {
				known = append(known, service)
			}
			slices.Sort(known)
		}
		if nearest := faults.Nearest(name, known); nearest != "" {
			for i := range reports[first:] {
				reports[first+i].Message += fmt.Sprintf("; did you mean %q?", nearest)
			}
		}
	}
	return reports
}

// onReference returns a report on a reference, if it is to a service that does not exist (nil) or to a subset without endpoints.
func onReference(rule *meshpolicy.Rule, ref meshpolicy.Reference, own *serviceResources) []Report {
	report, severity := onRule(rule, ref.Path()), Error
	missing, empty := "requests that go there fail", "requests that go there fail"
	switch {
	case ref.IsMirror:
		severity, missing, empty = Warning, "requests are not mirrored", "the copies of requests fail"
	case ref.Weight == 0:
		severity, missing, empty = Note, "no requests go there", ""
	}
	switch {
	case own == nil:
		return []Report{report.says(severity, "the mesh has no service %q; %s", ref.Name, missing)}
	case empty == "" || len(ref.Tags) == 0 || !own.empty[ref.Subset()]:
		return nil
	}
	tag, suggestion := own.service.lacking(ref.Tags)
	report.Source.Line = cmp.Or(ref.TagLines[tag], report.Source.Line)
	return []Report{report.says(Warning, "no endpoint of service %s has the tags %s; %s%s", ref.Name, meshpolicy.FormatTags(ref.Tags), empty, suggestion)}
}

// maxSuggested bounds a list of all that a word may be, and the services in place of which others are suggested.
const maxSuggested = 5

// lacking returns the first of the tags that no endpoint has, with a suggestion of another key or value for the end of a message, if that can
// be said in a few words. Both are empty if each tag is that of some endpoint.
func (s *Service) lacking(tags map[string]string) (tag, suggestion string) {
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		keys, values := make(map[string]bool), make(map[string]bool)
		for i := range s.Endpoints {
			for k, v := range s.Endpoints[i].Tags {
				if keys[k] = true; k == key {
					values[v] = true
				}
			}
		}
		word, known := tags[key], values
		if values[word] {
			continue
		}
		if !keys[key] {
			word, known = key, keys
		}
		choices := slices.Sorted(maps.Keys(known))
		if len(choices) == 0 || len(choices) > maxSuggested && faults.Nearest(word, choices) == "" {
			return key, ""
		}
		return key, "; " + faults.DidYouMean(word, choices)
	}
	return "", ""
}
