package meshpolicy

import (
	"fmt"
	"strings"
)

// String returns the rules in the order in which they are tried, with the origin of each field:
//
//	path Prefix /v2
//	    matches      policy consumer (consumer.yaml:11), policy owner (owner.yaml:22)
//	    filters      policy consumer (consumer.yaml:13)
//	                 RequestHeaderModifier add env="dev"
//	    backendRefs  policy owner (owner.yaml:24)
//	                 backend{version=v2}
func (m Merged) String() string {
	var b strings.Builder
	for _, r := range m.Routes() {
		b.WriteString(r.Match.String())
		if r.Unreachable {
			b.WriteString(" (never reached: an earlier rule matches everything)")
		}
		b.WriteByte('\n')
		if r.Rule == nil && m.Complete {
			b.WriteString("    no rule: the RPCs fail with UNIMPLEMENTED\n")
			continue
		}
		r.Rule.explain(&b, r.Index)
	}
	return b.String()
}

// explain prints the fields of a rule, for one of its matches; nil is for requests without one.
func (r *MergedRule) explain(b *strings.Builder, match int) {
	if r == nil {
		b.WriteString("    backendRefs  no policy: the service itself\n")
		return
	}
	var from []string
	for _, o := range r.MatchesFrom {
		from = append(from, describe(o, o.MatchSource(match)))
	}
	fmt.Fprintf(b, "    matches      %s\n", strings.Join(from, ", "))
	for f, name := range FieldNames {
		if o := r.From[f]; r.Has(Field(f)) && Field(f) != FieldBackendRefs {
			fmt.Fprintf(b, "    %-12s %s\n", name, describe(o, o.FieldSource(Field(f))))
			for _, line := range r.describe(Field(f)) {
				fmt.Fprintf(b, "                 %s\n", line)
			}
		}
	}
	o := r.From[FieldBackendRefs]
	fmt.Fprintf(b, "    backendRefs  %s", describe(o, o.FieldSource(FieldBackendRefs)))
	switch {
	case r.NoBackends:
		b.WriteString(": none, requests fail\n")
		return
	case len(r.BackendRefs) == 0:
		b.WriteString(": the service itself\n")
		return
	}
	b.WriteByte('\n')
	for _, ref := range r.BackendRefs {
		fmt.Fprintf(b, "                 %s", ref)
		if len(r.BackendRefs) > 1 || ref.Weight == 0 {
			fmt.Fprintf(b, ", weight %d", ref.Weight)
		}
		for i := range ref.Filters {
			fmt.Fprintf(b, ", %s", ref.Filters[i].String())
		}
		b.WriteByte('\n')
	}
}

// describe names the policy of a rule and a place in it. nil is of no policy.
func describe(r *Rule, at Source) string {
	if r == nil {
		return "no policy"
	}
	return "policy " + r.To.Policy.Name + " (" + at.String() + ")"
}

// describe returns the lines that describe a field other than backendRefs.
func (r *Rule) describe(f Field) (lines []string) {
	switch {
	case f != FieldFilters:
		return []string{[]fmt.Stringer{FieldTimeouts: r.Timeouts, FieldRetry: r.Retry, FieldSession: r.Session}[f].String()}
	case r.Problem != "":
		return []string{"not supported: " + r.Problem}
	}
	for i := range r.Filters {
		lines = append(lines, r.Filters[i].String())
	}
	return lines
}
