package dnsconfig

import "time"

// Outcome says what a look-up came to.
type Outcome int

const (
	// OutcomeChosen: there is a list, and a choice of it is this client's.
	OutcomeChosen Outcome = iota + 1
	// OutcomeNoMatch: there is a list, and nothing in it is for this client.
	OutcomeNoMatch
	// OutcomeNoRecord: the name has no TXT record with the attribute, or does
	// not exist.
	OutcomeNoRecord
	// OutcomeFaulty: the records are there and cannot be used. The service
	// config of the last good look-up stays in use.
	OutcomeFaulty
	// OutcomeFailed: DNS did not answer, or answered with an error. The service
	// config of the last good look-up stays in use, and the look-up is repeated
	// with backoff.
	OutcomeFailed
)

// String names the outcome as logs do.
func (o Outcome) String() string {
	switch o {
	case OutcomeChosen:
		return "chosen"
	case OutcomeNoMatch:
		return "no match"
	case OutcomeNoRecord:
		return "no record"
	case OutcomeFaulty:
		return "faulty"
	case OutcomeFailed:
		return "failed"
	default:
		return "unknown"
	}
}

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
