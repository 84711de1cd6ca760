"""Writes jinja_cases.json: what Jinja itself, set up as Transformers does, makes of the templates below.

Needs jinja2 3.1 (any machine; the project itself has no use for Python). Run it in this folder after a change of the list.
"""
import copy
import datetime
import json

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

VARIABLES = {'s': 'Hello wörld 世界', 'n': 5, 'f': 2.5, 'l': [3, 1, 2], 'd': {'b': 1, 'a': 'x', 'items': 7}, 't': True, 'z': None, 'e': [], 'es': '', 'msgs': [{'role': 'user', 'content': 'hi'}, {'role': 'assistant', 'content': 'yo', 'x': 1}], 'neg': -7, 'words': '  a b\tc\n d  ', 'big': 12345678901234567890, 'fl': [1.0, 1e+16, 1e-05, 123456789.123, 0.1, 1e+22, -0.0, 1e+100]}

TEMPLATES = r"""
{{ 1 + 2 * 3 }}
{{ 7 / 2 }}
{{ 7 // 2 }}
{{ -7 // 2 }}
{{ -7 % 3 }}
{{ 7 % -3 }}
{{ 2 ** 10 }}
{{ 2**3**2 }}
{{ -2**2 }}
{{ s[0] }}
{{ s[-1] }}
{{ s[1:3] }}
{{ s[::-1] }}
{{ s[-2:] }}
{{ s[::2] }}
{{ s[5:1:-1] }}
{{ s[100:] }}
{{ s[99] is defined }}
{{ l }}
{{ l[1:] }}
{{ l[::-1] }}
{{ (1,) }}
{{ (1,2) }}
{{ () }}
{{ {'a': 1, 2: [None, True]} }}
{{ d }}
{{ d.items() }}
{{ d.keys() }}
{{ d.values() }}
{{ d.items is defined }}
{{ d['items'] }}
{{ d.get('q', 3) }}
{{ d.get('q') }}
{{ fl }}
{{ fl[0] }}
{{ 1e3 }}
{{ 1.5e300*1e10 }}
{{ 3.0 }}
{{ 10/5 }}
{{ "a" ~ 1 ~ none ~ true ~ 1.5 ~ [1] }}
{{ 'a' in 'abc' }}
{{ 1 in l }}
{{ 'b' in d }}
{{ 'q' not in d }}
{{ 1 in (1,2) }}
{{ not t }}
{{ t and 0 }}
{{ es or 'x' }}
{{ none or false }}
{{ 1 < 2 < 3 }}
{{ 1 < 3 < 2 }}
{{ 1 == 1.0 }}
{{ true == 1 }}
{{ 'yes' if n > 3 else 'no' }}
{{ 'yes' if n > 30 }}
{{ 1 if 0 else 2 if 0 else 3 }}
{{ words.split() }}
{{ words.split(' ') }}
{{ 'a,b,c'.split(',', 1) }}
{{ 'a,b,c'.rsplit(',', 1) }}
{{ words.rsplit(None, 2) }}
{{ words.split(None, 1) }}
{{ 'abcabc'.replace('b','X') }}
{{ 'abc'.replace('','-') }}
{{ 'aaa'.replace('a','b',2) }}
{{ 'äöü'.replace('','-') }}
{{ 'xxhixx'.strip('x') }}
{{ '  hi '.lstrip() }}
{{ '  hi '.rstrip() }}
{{ 'abcba'.strip('ab') }}
{{ 'straße'.upper() }}
{{ 'ÀÉ'.lower() }}
{{ 'hello world'.title() }}
{{ "they're bill's".title() }}
{{ "they're bill's"|title }}
{{ 'hELLO wORLD'.capitalize() }}
{{ 'aBc'.swapcase() }}
{{ 'abc'.startswith('a') }}
{{ 'abc'.startswith(('x','a')) }}
{{ 'abc'.endswith('bc') }}
{{ 'abc'.startswith('b', 1) }}
{{'abc'.find('c')}}
{{'äbc'.find('c')}}
{{'abcabc'.rfind('b')}}
{{'abc'.find('z')}}
{{'abcabc'.count('bc')}}
{{'abc'.count('')}}
{{ 'a-b-c'.partition('-') }}
{{ 'a-b-c'.rpartition('-') }}
{{ 'abc'.partition('-') }}
{{ 'abc'.rpartition('-') }}
{{ '7'.zfill(3) }}
{{ '-7'.zfill(4) }}
{{ 'a'.ljust(3) }}
{{ 'a'.rjust(3,'*') }}
{{ 'ab'.center(5,'*') }}
{{ 'abc'.center(6,'*') }}
{{ ','.join(['a','b']) }}
{{ ','.join('abc') }}
{{ 'a\nb\r\nc\n'.splitlines() }}
{{ 'a\nb'.splitlines(true) }}
{{ '{} {}'.format(1, 'x') }}
{{ '{1}{0}'.format('a','b') }}
{{ '{x:>5}|{y:.2f}|{z:05d}'.format(x='a', y=3.14159, z=42) }}
{{ '{{}}'.format() }}
{{ '%s %d %.2f %5s|%-5s|%05d %x %%' % ('a', 42, 3.14159, 'r', 'l', 7, 255) }}
{{ '%s' % 'x' }}
{{ '%(a)s' % {'a': 1} }}
{{ 'abc'.isalpha() }}
{{ '123'.isdigit() }}
{{ 'a1'.isalnum() }}
{{ ' '.isspace() }}
{{ 'AB'.isupper() }}
{{ 'ab'.islower() }}
{{ ''.isalpha() }}
{{ l|sort }}
{{ l|sort(reverse=true) }}
{{ ['b','A','c']|sort }}
{{ ['b','A','c']|sort(case_sensitive=true) }}
{{ msgs|sort(attribute='role')|map(attribute='role')|list }}
{{ d|dictsort }}
{{ {'B':1,'a':2}|dictsort }}
{{ {'B':1,'a':2}|dictsort(true) }}
{{ {'B':2,'a':1}|dictsort(by='value') }}
{{ {'B':1,'a':2}|dictsort(reverse=true) }}
{{ l|first }}
{{ l|last }}
{{ e|first }}
{{ l|length }}
{{ s|length }}
{{ d|count }}
{{ l|sum }}
{{ l|max }}
{{ l|min }}
{{ e|max }}
{{ 'hello'|first }}
{{ 'hello'|last }}
{{ l|join }}
{{ l|join(', ') }}
{{ msgs|join(',', attribute='content') }}
{{ [1,none,'a']|join('-') }}
{{ msgs|map(attribute='role')|join(',') }}
{{ msgs|map(attribute='x', default=9)|list }}
{{ ['a','b']|map('upper')|list }}
{{ ['1','2']|map('int')|sum }}
{{ msgs|map('tojson')|join }}
{{ msgs|selectattr('role','equalto','user')|list }}
{{ msgs|rejectattr('x')|list }}
{{ msgs|selectattr('x','defined')|map(attribute='x')|list }}
{{ l|select('gt', 1)|list }}
{{ l|reject('odd')|list }}
{{ [0,1,'']|select|list }}
{{ [1,2,2,'a','A',1.0]|unique|list }}
{{ l|reverse|list }}
{{ 'abc'|reverse }}
{{ l|batch(2)|list }}
{{ l|batch(2,0)|list }}
{{ [1,2,3,4,5]|slice(2)|list }}
{{ [1,2,3,4,5]|slice(3,'x')|list }}
{{ '42'|int }}
{{ 'x'|int }}
{{ 'x'|int(7) }}
{{ '4.7'|int }}
{{ 4.7|int }}
{{ '0x1f'|int(base=16) }}
{{ ' 12 '|int }}
{{ '1_000'|int }}
{{ '3.5'|float }}
{{ 'x'|float }}
{{ 3|float }}
{{ none|int(3) }}
{{ 2.5|round }}
{{ 3.5|round }}
{{ 2.675|round(2) }}
{{ 2.1|round(0,'ceil') }}
{{ 2.19|round(1,'floor') }}
{{ 5|round }}
{{ -3|abs }}
{{ 5|abs }}
{{ undefinedx }}
{{ undefinedx|default('d') }}
{{ es|default('d') }}
{{ es|default('d', true) }}
{{ none|default('d') }}
{{ undefinedx|d }}
{{ 'hello world foo bar baz'|truncate(10) }}
{{ 'hello world foo bar baz'|truncate(10, true) }}
{{ 'hello world'|truncate(9) }}
{{ 'hello world foo'|truncate(9, false, '!', 0) }}
{{ 'a\nb\n\nc'|indent }}
{{ 'a\nb\n\nc'|indent(2, true, true) }}
{{ 'a\nb'|indent('>>') }}
{{ 'x'|indent(2, first=true) }}
{{ 'x'|center(5) }}
{{ '%s-%s'|format(1,2) }}
{{ 'a b'|replace(' ','_') }}
{{ 123|replace('2','x') }}
{{ 12|string ~ 'x' }}
{{ '  x '|trim }}
{{ 'xxaxx'|trim('x') }}
{{ 'AB'|lower }}
{{ 'ab'|upper }}
{{ 'aB c'|capitalize }}
{{ none|trim }}
{{ 1|upper }}
{{ d|tojson }}
{{ d|tojson(indent=2) }}
{{ s|tojson }}
{{ s|tojson(ensure_ascii=true) }}
{{ "q\"\\/\n\t\x01\x7f\u2028😀"|tojson }}
{{ "\x7f😀é"|tojson(true) }}
{{ {}|tojson(indent=1) }}
{{ []|tojson(indent=1) }}
{{ [[],{}, [1]]|tojson(indent=1) }}
{{ {'b':1,'a':2}|tojson(sort_keys=true) }}
{{ {'a':[1,2]}|tojson(separators=(',',':')) }}
{{ {1:2, true: 3, none: 4, 1.5: 5}|tojson }}
{{ fl|tojson }}
{{ (1,2)|tojson }}
{{ big|tojson }}
{{ big }}
{{ 'x'|tojson(indent='>') }}
{{ [1]|tojson(indent='>') }}
{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('a','b') }}{{ loop.changed(x) }}{{loop.depth}};{% endfor %}
{% for x in l if x > 1 %}{{ x }}{{ loop.index }}{{ loop.last }}{{ loop.length }}{{ loop.nextitem }};{% endfor %}
{% for x in e %}{{ x }}{% else %}empty{% endfor %}{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% else %}no{% endfor %}{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for c in 'äb' %}[{{ c }}]{% endfor %}{% for a, (b, c) in [(1,(2,3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}
{% for x in [[1,[2,3]],[4]] recursive %}{% if x is iterable %}({{ loop(x) }}{{ loop.depth }}){% else %}{{ x }}{% endif %}{% endfor %}
{% set x = 1 %}{% for i in l %}{% set x = i %}{{ x }}{% endfor %}{{ x }}{% if true %}{% set x = 9 %}{% endif %}{{ x }}
{% set ns = namespace(a=1, b=[]) %}{% for i in l %}{% set ns.a = ns.a + i %}{% set ns.b = ns.b + [i] %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns['a'] }}{{ ns.zz is defined }}
{% macro f(a, b=2, c=a) %}<{{ a }},{{ b }},{{ c }}>{% endmacro %}{{ f(1) }}{{ f(1, c=5) }}{{ f(b=1, a=3) }}{{ f() }}
{% macro g() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ g(1,2,x=3) }}{{ g() }}
{% macro h(t) %}[{{ t }}{{ caller() }}{{ caller('q') }}]{% endmacro %}{% call(z='d') h('T') %}<{{ z }}>{% endcall %}
{% macro r(n) %}{{ n }}{% if n > 0 %}{{ r(n - 1) }}{% endif %}{% endmacro %}{{ r(5) }}
{% set v %}block {{ n }}{% endset %}{{ v }}{% set v | upper | replace('X','y') %}xab{% endset %}{{ v }}{% filter upper %}abc{{ n }}{% endfilter %}{% filter trim | lower %}  ABC {% endfilter %}
{% with a = 1, b = n %}{{ a + b }}{% endwith %}{{ a is defined }}{% generation %}gen{% set q = 1 %}{% endgeneration %}{{ q is defined }}
{% raw %}{{ x }} {% if %}{% endraw %}{# comment #}after{#- c -#} x
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (c, d2) = [3, 4] %}{{ c }}{{ d2 }}
{{ n is number }}
{{ n is integer }}
{{ f is float }}
{{ t is boolean }}
{{ t is integer }}
{{ t is number }}
{{ s is string }}
{{ d is mapping }}
{{ l is sequence }}
{{ d is sequence }}
{{ s is sequence }}
{{ n is iterable }}
{{ d.items() is sequence }}
{{ d.items() is iterable }}
{{ z is none }}
{{ zz is undefined }}
{{ f is callable }}
{{ range is callable }}
{{ t is true }}
{{ 1 is true }}
{{ 4 is even }}
{{ 3 is odd }}
{{ 9 is divisibleby 3 }}
{{ 9 is divisibleby(2) }}
{{ 1 is eq 1 }}
{{ 1 is in [1] }}
{{ 'a' is lower }}
{{ 'A' is upper }}
{{ 'tojson' is filter }}
{{ 'odd' is test }}
{{ none is sameas none }}
{{ 1 is not none }}
{{ s is not string }}
{{ range(5)|list }}
{{ range(1,5)|list }}
{{ range(5,0,-2)|list }}
{{ range(3)[1] }}
{{ range(0)|list }}
{{ range(3)|length }}
{{ 2 in range(3) }}
{{ dict(a=1, b=2) }}
{{ dict({'x': 1}, y=2) }}
{{ dict([('a', 1)]) }}
{{ strftime_now('%Y-%m-%d %H:%M:%S %B %b %A %a %j %p %I %y %-d %e %% %d %m %w %u %D %F %T %R %c %x %X') }}
{% set j = joiner('|') %}{{ j() }}a{{ j() }}b{% set c = cycler(1,2) %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}
{{ "a" "b" 'c' }}
{{ 'it\'s' }}
{{ "tab\there" }}
{{ '\x41\u00e9\U0001F600\101' }}
{{ '\q' }}
{{ 0x1F }}
{{ 0b11 }}
{{ 0o17 }}
{{ 1_000 }}
{{ 1.5e3 }}
{{ 'a' < 'b' }}
{{ [1,2] < [1,3] }}
{{ (1,2) == (1,2) }}
{{ [1] == (1,) }}
{{ {'a':1} == {'a':1.0} }}
{{ 'a' != 'b' }}
{{ none == false }}
{{ [1] + [2] }}
{{ (1,) + (2,) }}
{{ 'ab' * 2 }}
{{ 2 * [1] }}
{{ 'a' * -1 }}
{{ [[]] * 2 }}
{{ msgs[0].role }}
{{ msgs.0.role }}
{{ msgs[-1]['content'] }}
{{ msgs[5] }}
{{ msgs[0].zz }}
{{ msgs[0]['zz'] is defined }}
{{ d.a.b is defined }}
{{ l.index(1) }}
{{ l.count(3) }}
{{ (1,2,1).count(1) }}
{{ -n }}
{{ +n }}
{{ - n|abs }}
{{ not 1 == 2 }}
{{ 1 if not false }}
{{ n|string|length }}
{{ (n|string).zfill(3) }}
{{ "x" if "a" is in "abc" else "y" }}
{{ d|items|list }}
{{ undefinedx|items|list }}
{{ d.items()|list|length }}
{{ undefinedx|length }}
{{ undefinedx|list }}
{{ undefinedx|join }}
{{ "%s"|format("a") }}
{{ [3,1]|sort|first }}
{{ ("a","b")|join }}
{{ 5|float|int|string }}
{{ [1,2]|map('string')|join(',') }}
{{ {'a': 1}.a }}
{{ {'get': 1}['get'] }}
{{ {'x': {'y': [10, 20]}}.x.y[1] }}
{{ "abc"|list }}
{{ d|list }}
{{ "a" if none else "b" }}
{{ "" is none }}
{{ 1.0|string }}
{{ 1e20|string }}
{{ 100000000000000000000.0 }}
{{ 0.00001 }}
{{ 0.0001 }}
{{ ["a'b", 'a"b', 'a\'"b', "\n\t\\", "é", "\x00", "\u200b", "😀", "\u00a0"] }}
{{ l is defined and l|length > 2 }}
{{ (l|length > 2) and 'y' or 'n' }}
{{ l|map('string')|map('length')|sum }}
{{ [1,2,3]|select('in',[1,3])|list }}
{{ msgs|selectattr('role','in',['user'])|list|length }}
{{ msgs|map(attribute='role')|map('upper')|join }}
{{ 'abc'.removeprefix('a') }}
{{ 'abc'.removesuffix('c') }}
{{ 'ABC'.casefold() }}
{{ 'abc'.index('c') }}
{{ 'aXbX'.rindex('X') }}
{{ true + 1 }}
{{ true ~ '' }}
{{ 5 // 2.0 }}
{{ 5.5 % 2 }}
{{ -5.5 % 2 }}
{{ 5 / 0.5 }}
{{ 7 // -2 }}
{{ 1 - -1 }}
{% if l %}a{% elif e %}b{% else %}c{% endif %}{% if e %}a{% elif l %}b{% else %}c{% endif %}{% if e %}a{% elif z %}b{% else %}c{% endif %}
{% macro outer() %}{% set q = 3 %}{% macro inner() %}{{ q }}{% endmacro %}{{ inner() }}{% endmacro %}{{ outer() }}
{% macro m() %}{{ later }}{% endmacro %}{% set later = 5 %}{{ m() }}
{{ loop is defined }}{% for i in [1] %}{{ loop is defined }}{% for k in [1,2] %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}
{% for i in [1,2] %}{{ xx is defined }}{% set xx = i %}{% endfor %}
{{ msgs|map(attribute='content')|list|tojson }}
{{ d.keys()|list }}
{{ d.values()|list }}
{{ d.items()|list }}
{{ d.copy() }}
{%- set content = '<think>a</think>b' -%}{{ content.split('</think>')[-1].lstrip('\n') }}{{ content.split('</think>')[0].split('<think>')[-1] }}
{{ 'a' + 1 }}
{{ 'a' + [1] }}
{{ [1] + 'a' }}
{{ none + 1 }}
{{ 1 + none }}
{{ nope + 'a' }}
{{ nope.a }}
{{ nope['a'] }}
{{ nope() }}
{{ s() }}
{{ none in 'abc' }}
{{ 'a' in none }}
{{ 'a' in 3 }}
{{ 1 < 'a' }}
{{ none < 1 }}
{{ [2, 'a']|sort }}
{{ 1 / 0 }}
{{ 1 % 0 }}
{{ 5|items|list }}
{{ 5|list }}
{% for x in none %}{% endfor %}
{% for x in 5 %}{% endfor %}
{% for a, b in [1] %}{% endfor %}
{% set a, b = [1, 2, 3] %}
{% set q.x = 1 %}
{{ l['a']['b'] }}
{{ s.strip(1) }}
{{ 'abc'.index('z') }}
{{ none|length }}
{{ z[1:] }}
{{ l['a':] }}
{{ range(10000000) }}
{{ range(1, 2, 0)|list }}
{{ nope|tojson }}
{{ d.items()|tojson }}
{{ raise_exception('stop') }}
{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}
{% macro f(a) %}{% endmacro %}{{ f(b=2) }}
{{ l.append(4) }}
{{ d.update({'a': 1}) }}
{{ d.pop('a') }}
{{ s.__class__.__name__ }}
{{ namespace(_a=1) }}
{{ l|map('nofilter')|list }}
{{ 'a,b'.split('') }}
{{ '%d' % 'a' }}
{{ '%s %s' % 'a' }}
{{ '{} {}'.format(1) }}
{{ ([1,2]|join(',')).foo.bar }}
{{ {[1]: 2} }}
{{ d|tojson|items|list }}
{{ ','.join([1]) }}
{{ -'a' }}
{{ 'a' * 'b' }}
{{ (l|map('string')).x.y }}
{{ msgs|map(attribute='role.x.y')|list }}
""".strip().split("\n")


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    class Namespace(jinja2.utils.Namespace):
        def __init__(*args, **kwargs):
            if any(name.startswith("_") for name in kwargs):
                raise jinja2.exceptions.SecurityError("underscore")
            jinja2.utils.Namespace.__init__(*args, **kwargs)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["namespace"] = Namespace
    env.globals["strftime_now"] = datetime.datetime(2025, 1, 2, 3, 4, 5).strftime
    return env


def main():
    env = environment()
    cases = []
    for template in TEMPLATES:
        try:
            result = env.from_string(template).render(**copy.deepcopy(VARIABLES))
        except jinja2.TemplateSyntaxError:
            raise
        except Exception:  # the answer is that it fails; messages are tested elsewhere
            result = "error"
        cases.append({"template": template, "result": result})
    with open("jinja_cases.json", "w") as file:
        json.dump({"variables": VARIABLES, "cases": cases}, file, ensure_ascii=False, indent=0)
        file.write("\n")


main()
