// Package scenario runs a list of steps against live RPC traffic and judges,
// from the RPCs alone, whether each step was observed.
//
// A Step says what it does (Announcement, Do) and what the RPCs have to look
// like afterwards (Expect). RPCs come in through a Recorder, from whatever
// makes them; what happens goes out to an Observer, which prints it. Run stands
// between the two.
//
// The package knows neither gRPC nor xDS, makes no RPC and prints nothing. Its
// judgements do not depend on how fast the machine is: a step waits until
// enough RPCs have been counted, and the deviation that is allowed follows from
// their number.
package scenario
