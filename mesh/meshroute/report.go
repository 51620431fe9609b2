package meshroute

import (
	"strings"

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

// finding is a report on a rule without its line, so that equal policies at different lines have equal
// findings.
type finding struct {
	severity Severity
	clients  string
	policy   string
	// rule is -1 for the destination as a whole.
	to, rule int
	// field is the path below the rule.
	field, message string
	leftOut        bool
	// missing is the service that the mesh lacks, if that is what is found.
	missing string
}

// at returns the report on a policy.
func (f *finding) at(p *Policy) Report {
	if f.rule < 0 {
		return Report{f.severity, f.clients, p.Name, p.Source, p.Path(f.to, -1), f.message, f.leftOut}
	}
	path, origin := p.Path(f.to, f.rule), meshpolicy.Origin{Policy: p, To: f.to, Rule: f.rule}
	if f.field != "" {
		path += "." + f.field
	}
	source := origin.Source()
	if strings.HasPrefix(f.field, "backendRefs") {
		source = origin.FieldSource(meshpolicy.FieldBackendRefs)
	}
	return Report{Severity: f.severity, Clients: f.clients, Policy: p.Name, Source: source, Path: path, Message: f.message}
}
