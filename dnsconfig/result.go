package dnsconfig

import "time"

// Outcome is the outcome of a look-up, as logged.
type Outcome string

// The outcomes of a look-up. After OutcomeFaulty and OutcomeFailed the service config of the
// last good look-up stays in use.
const (
	OutcomeChosen   Outcome = "chosen"    // a choice of the list matches this client
	OutcomeNoMatch  Outcome = "no match"  // no choice of the list does
	OutcomeNoRecord Outcome = "no record" // there is no TXT record with the attribute
	OutcomeFaulty   Outcome = "faulty"    // the records are invalid
	// OutcomeFailed: DNS did not answer, or with an error. The look-up is retried with
	// backoff.
	OutcomeFailed Outcome = "failed"
)

// Result is the result of a look-up. It is immutable.
type Result struct {
	Name    string    // the DNS name that was looked up
	Time    time.Time // the end of the look-up
	Outcome Outcome
	Choice  *Choice      // nil unless OutcomeChosen
	Void    []VoidChoice // ignored choices
	Client  Client       // what the choices were matched against
	Err     error        // of OutcomeFaulty and OutcomeFailed
}
