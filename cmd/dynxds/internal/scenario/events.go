package scenario

import "time"

// Observer is told what happens, one call at a time. Its methods should return
// soon, as the scenario waits for them; what they are given is theirs to keep.
type Observer interface {
	// Announced: a step is about to begin.
	Announced(Announcement)
	// Progressed is called from time to time during a step.
	Progressed(Progress)
	// Judged: a step has ended.
	Judged(Result)
	// Finished: the traffic has ended; nothing follows.
	Finished(Summary)
}

// Announcement says what a step is about to do.
type Announcement struct {
	// Step counts from 1 to Steps.
	Step, Steps int
	Name        string
	// Text is in plain words.
	Text string
}

// Progress is a look at a step under way.
type Progress struct {
	Step, Steps int
	// Elapsed is since the scenario began, Planned is how long it is to be.
	Elapsed, Planned time.Duration
	// Counts are the RPCs since the change arrived, or of the whole step as
	// long as it has not.
	Counts Counts
	// Arrived says whether it has.
	Arrived bool
	Failed  int
	Speed   Speed
}

// Speed is how fast a step's RPCs were.
type Speed struct {
	// Rate is RPCs per second, of all kinds.
	Rate float64
	// P50 and P99 are quantiles of the latency of the RPCs that are not Paced.
	P50, P99 time.Duration
}

// Result is the judgement of a step.
type Result struct {
	Step, Steps int
	Name        string
	// Faults say in plain words why the step was not observed; none means that
	// it was.
	Faults []string
	// Arrived is how long after the change was begun the first RPC that shows
	// it was answered, 0 if none was.
	Arrived time.Duration
	// Counts are the RPCs that were judged: those that began after each
	// expected backend had answered one that shows the change.
	Counts Counts
	Checks []Check
	// Answered and Failed are all of the step's RPCs. Excused are the failed
	// ones that had to fail.
	Answered, Failed, Excused int
	Speed                     Speed
}

// Observed says whether the step was.
func (r Result) Observed() bool { return len(r.Faults) == 0 }

// Summary is how it all ended.
type Summary struct {
	// Observed is how many of Steps were.
	Observed, Steps int
	// Answered, Failed and Excused count the RPCs of the whole scenario.
	Answered, Failed, Excused int
	Elapsed                   time.Duration
	// Err is what Run returns: nil if all is well.
	Err error
}
