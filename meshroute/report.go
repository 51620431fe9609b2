package meshroute

import (
	"fmt"

	"github.com/dynxds/dynxds/internal/meshpolicy"
)

// Severity says how bad a Report is.
type Severity string

// The severities.
const (
	// Note: dynxds does what the policy says, other clients may not.
	Note Severity = "note"
	// Warning: gRPC clients do not do what the policy says, or part of it has no effect.
	Warning Severity = "warning"
	// Error: clients get an error in place of a resource.
	Error Severity = "error"
)

// The kinds of clients that reports are about.
const (
	// grpcClients are those whose Implementation is GRPCGo or OtherGRPC.
	grpcClients = "gRPC clients other than those of dynxds"
	// ipClients are those whose Implementation is OtherGRPC or Envoy.
	ipClients = "Envoy, and gRPC clients in languages other than Go"
)

// Report is something that the author of a policy or service ought to know. Whatever gRPC
// cannot express is reported.
type Report struct {
	Severity Severity
	// Clients are those that it is about, such as "gRPC clients other than those of dynxds"; empty: all.
	Clients string
	// Policy is the name of the policy, or empty.
	Policy string
	// Source is the rule, the policy or the service.
	Source Source
	// Path is the place in the policy, such as "spec.to[0].rules[1].filters[0]". It
	// may be empty.
	Path    string
	Message string
}

// String returns all of the report on one line.
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

// finding is a report on a rule before it is known where the rule stands: two
// policies that say the same at different lines have the same findings.
type finding struct {
	severity Severity
	clients  string
	policy   string
	// rule is -1 if the destination as a whole is meant.
	to, rule int
	// field is the path from the rule on.
	field, message string
}

// at makes a report of a finding on a policy.
func (f *finding) at(p *Policy) Report {
	if f.rule < 0 {
		return Report{f.severity, f.clients, p.Name, p.Source, fmt.Sprintf("spec.to[%d].targetRef", f.to), f.message}
	}
	path := fmt.Sprintf("spec.to[%d].rules[%d]", f.to, f.rule)
	if f.field != "" {
		path += "." + f.field
	}
	return Report{
		Severity: f.severity, Clients: f.clients, Policy: p.Name, Source: meshpolicy.Origin{Policy: p, To: f.to, Rule: f.rule}.Source(), Path: path, Message: f.message,
	}
}
