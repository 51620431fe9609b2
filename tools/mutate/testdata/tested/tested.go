// Package tested has tests that see some faults and not others.
package tested

const limit = 10

var total int

func atLeast(n int) string {
	if n >= limit && n != 11 {
		total++
		return "many"
	}
	return "few"
}

func unreached(n int) {
	if n == 0 {
		total++
	}
}
