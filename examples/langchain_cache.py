"""LangChain's cache in a stack: any chat model of LangChain's asks it first."""

from langchain_core.globals import set_llm_cache
from langchain_core.language_models import GenericFakeChatModel

from cachestack import CacheStack
from cachestack.integrations.langchain import CacheStackCache

with CacheStack.without_engine() as stack:
    set_llm_cache(CacheStackCache(stack, tenant="acme"))
    model = GenericFakeChatModel(messages=iter(["Press Reset."]))  # in its place: ChatOpenAI(...), ChatAnthropic(...)
    for question in ("How do I reset my password?", "How can I reset my password?"):
        print(model.invoke(question).content)
    set_llm_cache(None)
