package meshroute

import (
	"fmt"
	"strings"

	"github.com/dynxds/dynxds/internal/dialect"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
)

// Severity is the severity of a Report.
type Severity string

// The severities.
const (
	// Note: dynxds implements the policy, other clients may not.
	Note Severity = "note"
	// Warning: gRPC clients do not implement the policy, or part of it has no effect.
	Warning Severity = "warning"
	// Error: clients get an error in place of a resource.
	Error Severity = "error"
)

// Report is information for the author of a policy or service, such as a rule that gRPC cannot
// express.
type Report struct {
	Severity Severity
	// Clients are the affected clients, such as "gRPC clients other than those of dynxds"; empty
	// means all.
	Clients string
	// Policy is the name of the policy, or empty.
	Policy string
	// Source is the rule, the policy or the service.
	Source Source
	// Path is the place in the policy, such as "spec.to[0].rules[1].filters[0]", or empty.
	Path    string
	Message string
	// LeftOut says that the policy, service or endpoint counts for nothing, or the policy for nothing at one service.
	LeftOut bool
}

// String returns the report on one line.
func (r Report) String() string {
	text := string(r.Severity) + ": "
	if where := r.Source.String(); where != "" {
		text = where + ": " + text
	}
	if r.Policy != "" {
		text += "policy " + r.Policy + ": "
	}
	if r.Path != "" {
		text += r.Path + ": "
	}
	return text + r.Message
}

// says completes a report.
func (r Report) says(s Severity, format string, args ...any) Report {
	r.Severity, r.Message = s, fmt.Sprintf(format, args...)
	return r
}

// differs completes a report by what other clients do about a feature, for which args are.
func (r Report) differs(s Severity, f *dialect.Feature, args ...any) Report {
	inGo, elsewhere, inEnvoy := f.On(dialect.GRPCGo), f.On(dialect.OtherGRPC), f.On(dialect.Envoy)
	switch {
	case inGo != dialect.Obeys && inEnvoy != dialect.Obeys:
		r.Clients = "clients other than those of dynxds"
	case inGo != dialect.Obeys:
		r.Clients = "gRPC clients other than those of dynxds"
	case elsewhere != dialect.Obeys:
		r.Clients = "Envoy, and gRPC clients in languages other than Go"
	default:
		r.Clients = "Envoy"
	}
	return r.says(s, f.Note, args...)
}

// onPart returns a report on the destination of a part.
func onPart(p *meshpolicy.To) Report {
	return Report{Policy: p.Policy.Name, Source: p.Policy.Source, Path: p.Path()}
}

// onLeftOut returns a report on the destination of a part that counts for nothing there.
func onLeftOut(p *meshpolicy.To, format string, args ...any) Report {
	r := onPart(p).says(Error, format, args...)
	r.LeftOut = true
	return r
}

// onRule returns a report on a rule. field is the path below it, or empty.
func onRule(r *meshpolicy.Rule, field string) Report {
	path, source := r.Path(), r.Source(0)
	if field != "" {
		path += "." + field
	}
	if strings.HasPrefix(field, "backendRefs") {
		source = r.FieldSource(meshpolicy.FieldBackendRefs)
	}
	return Report{Policy: r.To.Policy.Name, Source: source, Path: path}
}
