// Package exit has the exit statuses of the command, and errors that know theirs.
package exit

import (
	"errors"
	"fmt"
)

// The exit statuses.
const (
	// No: the answer is no, or the command failed.
	No = 1
	// Usage: the command line is wrong, and nothing was done.
	Usage = 2
	// Unreachable: another process does not answer.
	Unreachable = 3
)

// Help is the text about them in each command's help.
const Help = `Exit status: 0 fine; 1 the answer is no, or the command failed; 2 the command line is wrong;
3 another process cannot be reached.`

// Error is an error with an exit status. Without an error inside, nothing is printed.
type Error struct {
	Code int
	Err  error
}

func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit status %d", e.Code)
	}
	return e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// With gives an error an exit status, unless it has one, or is nil.
func With(code int, err error) error {
	if own := (*Error)(nil); err == nil || errors.As(err, &own) {
		return err
	}
	return &Error{code, err}
}

// Usagef returns an error about the command line.
func Usagef(format string, args ...any) error { return &Error{Usage, fmt.Errorf(format, args...)} }

// Code returns the exit status of an error.
func Code(err error) int {
	own := (*Error)(nil)
	switch {
	case err == nil:
		return 0
	case errors.As(err, &own):
		return own.Code
	default:
		return No
	}
}

// Silent reports whether nothing is to be printed of an error.
func Silent(err error) bool {
	own := (*Error)(nil)
	return errors.As(err, &own) && own.Err == nil
}
