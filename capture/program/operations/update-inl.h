// LibTorch's operators that round alike on cores and on GPUs, for formulas of updates. FORMULA:
// function specifiers. No guard, since Highway includes it once for each instruction set.

FORMULA void mul_(Number& a, double b) {
  a = a * constant(b);
}
FORMULA void add_(Number& a, double b) {
  a = a + constant(b);
}
FORMULA void add_(Number& a, const Number& b) {
  a = a + b;
}
FORMULA void add_(Number& a, const Number& b, double factor) {
  a = times_plus(constant(factor), b, a);
}
FORMULA void div_(Number& a, double b) {
  a = a / constant(b);
}
FORMULA void addcmul_(Number& a, const Number& b, const Number& c, double factor) {
  a = times_plus(constant(factor) * b, c, a);
}
FORMULA void addcdiv_(Number& a, const Number& b, const Number& c) {
  a = a + b / c;
}
FORMULA void sqrt_of(Number& a, const Number& b) {
  a = root_of(b);
}
