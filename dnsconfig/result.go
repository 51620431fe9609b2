package dnsconfig

import "time"

// Outcome says what a look-up came to, in the words of the log.
type Outcome string

// The outcomes of a look-up.

const (
	// OutcomeChosen: there is a list, and a choice of it is this client's.
	OutcomeChosen Outcome = "chosen"
	// OutcomeNoMatch: there is a list, and nothing in it is for this client.
	OutcomeNoMatch Outcome = "no match"
	// OutcomeNoRecord: the name has no TXT record with the attribute, or does
	// not exist.
	OutcomeNoRecord Outcome = "no record"
	// OutcomeFaulty: the records are there and cannot be used. The service
	// config of the last good look-up stays in use.
	OutcomeFaulty Outcome = "faulty"
	// OutcomeFailed: DNS did not answer, or answered with an error. The service
	// config of the last good look-up stays in use, and the look-up is repeated
	// with backoff.
	OutcomeFailed Outcome = "failed"
)

// Result is what one look-up came to. It is immutable.
type Result struct {
	// Name is the DNS name that was looked up.
	Name string
	// Time is when the look-up ended.
	Time    time.Time
	Outcome Outcome
	// Choice is the choice taken, nil unless OutcomeChosen.
	Choice *Choice
	// Void are the choices left out of account.
	Void []VoidChoice
	// Client is what the choices were matched against.
	Client Client
	// Err is why the look-up is faulty or failed, nil otherwise.
	Err error
}
